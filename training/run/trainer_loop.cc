#include "training/run/trainer_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "base/processors.h"
#include "base/text.h"
#include "training/checkpoint/run_directory.h"
#include "training/core/group.h"
#include "training/optimizers/registry.h"
#include "training/run/snapshot.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeToAskAll{1};
constexpr const char* kRate = "lr";            // key in the state: the last step's rate
constexpr const char* kNoise = "noise_scale";  // key in the state: NoiseScale::Averages

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

std::vector<MicroBatch> views(const StepFeed& feed) {
  std::vector<MicroBatch> views;
  for (const Batch& batch : feed.own) views.push_back(batch.view());
  return views;
}

// Returns true for a language model's data.
bool has_tokens(const DataSet& data) {
  Batch batch;
  data.add(0, 0, batch);
  return !batch.tokens.empty();
}

std::string name_of_steps(uint64_t first, uint64_t last) {
  return first == last ? cat("step ", first) : cat("steps ", first, " to ", last);
}

}  // namespace

Trainer::Loop::Loop(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
                    const TrainOptions& options, RunConfiguration configuration)
    : model_(model),
      options_(options),
      configuration_(std::move(configuration)),
      world_(mesh.world()),
      origin_(world_, options_, configuration_),
      feed_(made_on_all(world_,
                        [&] {
                          return Feed(data,
                                      {.batch = options.batch,
                                       .micro_batch = options.micro_batch,
                                       .samples = options.samples,
                                       .seed = options.seed,
                                       .rank = mesh.place().number_along(kSampleAxes),
                                       .ranks = roles_of(options.replica.sync,
                                                         mesh.place().ranks_along(kSampleAxes))
                                                    .workers(),
                                       .token_rank = mesh.place(Axis::context),
                                       .token_ranks = mesh.size(Axis::context),
                                       .window = model.attention_window(),
                                       .workers = options.workers,
                                       .weights = options.data_weights,
                                       .labels_per_client = options.labels_per_client});
                        })),
      replica_(mesh, model, make_optimizer(options.optimizer),
               replica_options(options.replica, feed_),
               [&](const Layout& layout) { return make_hook(options, model, layout); }),
      of_tokens_(has_tokens(*data.front())) {
  if (!options.trace.empty()) replica_.record(trace_);
  if (options.profile) replica_.profile(profiler_);
  options_.schedule.total_steps = static_cast<int64_t>(feed_.steps());
  const RunOrigin::Begun begun = origin_.load(replica_, model, feed_.steps());
  resumed_at_ = done_ = reported_ = begun.done;
  go_on_from(begun.state);
  options_.kept.reset();
  if (!options.checkpoint.empty()) saver_.emplace(replica_, model, saver_options());
  feeds_.emplace(feed_, done_);
  report_.steps = feed_.steps();
}

Trainer::Loop::~Loop() {
  if (!finished_ && !options_.trace.empty()) write_own_trace(world_, trace_, options_.trace);
}

Evaluation Trainer::Loop::validate() {
  const StepFeed feed = feed_.validation(options_.validation_samples);
  const TraceSpan span(tracing(), "validation", TraceCategory::step);
  Evaluation evaluation = replica_.evaluate(views(feed), static_cast<int64_t>(feed.passes));
  evaluation.of_tokens = of_tokens_;
  return evaluation;
}

void Trainer::Loop::save() {
  if (options_.checkpoint.empty()) {
    throw Error(ErrorCode::invalid_argument, "the run has no checkpoint directory",
                {.remedy = "add --checkpoint DIR"});
  }
  if (reported_ != done_) {
    throw Error(ErrorCode::invalid_argument,
                cat("step ", reported_,
                    " cannot be saved, because the pipeline is not flushed until step ", done_),
                {.remedy = "save after that step, or use --checkpoint-every"});
  }
  if (saver_->saved() < done_) save_done();
  saver_->finish();
}

RunSaverOptions Trainer::Loop::saver_options() {
  return {.directory = origin_.directory(),
          .configuration = configuration_.whole,
          .keep = options_.keep,
          .in_background = options_.async_checkpoint,
          .saved = done_};
}

// Returns the state that the trainer needs to continue.
Json Trainer::Loop::state() const {
  const NoiseScale::Averages noise = noise_scale_.averages();
  return {{"samples", std::min(done_ * options_.batch, options_.samples)},
          {"batch", options_.batch},
          {"seed", options_.seed},
          {kRate, done_ == 0 ? 0 : options_.schedule.at(static_cast<int64_t>(done_))},
          {kNoise, {noise.gradient_square, noise.noise, noise.weight}}};
}

// Warns if the learning rate jumps because the resumed run has another schedule than before, for
// example because it has more steps.
void Trainer::Loop::tell_of_jump(double last_rate) const {
  const auto step = static_cast<int64_t>(done_);
  if (last_rate <= 0 || world_.rank() != 0 || done_ == feed_.steps()) return;
  const double same_step = options_.schedule.at(step);
  if (std::abs(same_step - last_rate) < 0.1 * last_rate) return;
  log(LogLevel::warning, cat("the learning rate jumps from ", last_rate, " in step ", step, " to ",
                             options_.schedule.at(step + 1), " in step ", step + 1,
                             ", because its schedule has changed"));
}

void Trainer::Loop::go_on_from(const Json& state) {
  tell_of_jump(state.value(kRate, 0.0));
  if (!state.contains(kNoise)) return;
  const Json& noise = state.at(kNoise);
  noise_scale_.go_on_from({noise.at(0), noise.at(1), noise.at(2)});
}

// Copies the state to memory if `every` steps have passed since the last copy. The first call,
// before any step, always copies, so that the run survives a rank's death from the start.
void Trainer::Loop::keep_in_memory(uint64_t every) {
  if (!options_.copies || (kept_ && done_ < *kept_ + every)) return;
  const TraceSpan span(tracing(), "copies in memory", TraceCategory::step);
  const SnapshotParts parts =
      parts_of(replica_, model_,
               {.step = static_cast<int64_t>(done_), .configuration = {}, .state = state()});
  options_.copies->keep(world_, parts.request.step, parts.request.state, parts.pieces);
  kept_ = done_;
}

// Saves the last step, with its validation loss, if known.
void Trainer::Loop::save_done(const Evaluation* validation) {
  const TraceSpan span(tracing(), "checkpoint", TraceCategory::step);
  Json state = this->state();
  if (validation != nullptr) state[kValidationLoss] = validation->loss;
  saver_->save(done_, std::move(state), validation != nullptr);
}

void Trainer::Loop::save_if_best(const Evaluation& validation) {
  if (options_.keep_best && saver_ && saver_->improves(validation.loss)) save_done(&validation);
}

// Runs steps [first, last], counted from 1, without a flush in between.
Trainer::Loop::StepsDone Trainer::Loop::run_steps(uint64_t first, uint64_t last) {
  StepsDone done;
  std::vector<StepFeed> taken;
  std::vector<std::vector<MicroBatch>> own;
  std::vector<StepBatches> batches;
  std::vector<double> rates;
  for (uint64_t step = first; step <= last; ++step) {
    taken.push_back(feeds_->take());
    const StepFeed& feed = taken.back();
    own.push_back(views(feed));
    batches.push_back({.own = own.back(), .passes = static_cast<int64_t>(feed.passes)});
    if (options_.replica.sync.kind == SyncKind::async) {
      batches.back().of_part = [this, step](int part) {
        part_ = feed_.part(step - 1, part);
        part_views_ = views(part_);
        return std::span<const MicroBatch>(part_views_);
      };
    }
    if (options_.stop_requested) {
      batches.back().sign = [this] { return options_.stop_requested() != 0; };
    }
    rates.push_back(options_.schedule.at(static_cast<int64_t>(step)));
    done.samples += feed.samples;
  }
  if (first == last) feeds_->look_ahead();
  const StepFeed* const ahead = feeds_->ahead();
  const std::vector<MicroBatch> next_own =
      ahead != nullptr ? views(*ahead) : std::vector<MicroBatch>();
  const StepBatches next{.own = next_own};
  if (ahead != nullptr) batches.back().next = &next;
  done.results = replica_.run(batches, static_cast<int64_t>(first), rates);
  return done;
}

Trainer::Loop::StepsDone Trainer::Loop::profile_steps(uint64_t first, uint64_t last) {
  const ObserveKernels observe(&profiler_);
  profiler_.begin();
  StepsDone done = run_steps(first, last);
  profiler_.end(static_cast<int64_t>(last + 1 - first));
  return done;
}

// Returns the largest signal of all ranks' stop requests, so that all ranks stop after the same
// step. With copies in memory, returns 0 as long as only some ranks have requests, and departs once
// one of these requests is kTimeToAskAll old.
int Trainer::Loop::agreed_stop(uint64_t step) {
  if (!options_.stop_requested) return 0;
  // StepResult::signs shows that no rank was asked to stop when its gradients were computed.
  if (world_.size() > 1 && !results_.empty() && results_.back().signs == 0) return 0;
  const auto largest = [&](int value) {
    return replica_.largest_on_any_rank(value, static_cast<int64_t>(step));
  };
  const int own = options_.stop_requested();
  const int any = largest(own);
  if (any == 0 || !options_.copies) return any;
  const bool all = largest(own == 0 ? 1 : 0) == 0;
  if (all) return any;
  if (own != 0 && !asked_) asked_ = Clock::now();
  // Leaves only some time after the request, in case the other ranks are about to be asked to stop,
  // too.
  const bool leaves = own != 0 && Clock::now() - *asked_ >= kTimeToAskAll;
  const int leaver = largest(leaves ? world_.rank() + 1 : 0) - 1;
  if (leaver < 0) return 0;
  depart(cat(world_.describe(leaver), " leaves after signal ", any), leaves ? own : 0);
}

// Copies the state to memory and throws a Departure. The barrier prevents the first rank that
// throws from aborting the communication of ranks that have not arrived here.
void Trainer::Loop::depart(const std::string& why, int signal) {
  keep_in_memory(1);
  try {
    world_.barrier();
  } catch (const Error&) {  // a rank has died; all others have arrived
  }
  throw Departure(why, signal);
}

// Replays the loss of ranks: if the recorded run had fewer ranks in the next step, the ranks beyond
// that number leave.
void Trainer::Loop::leave_as_recorded() {
  if (!options_.copies) return;
  const int ranks =
      replica_.recorded_ranks(static_cast<int64_t>(done_ + 1)).value_or(world_.size());
  if (ranks < 1 || ranks >= world_.size()) return;
  depart(cat("from step ", done_ + 1, " on the recorded run had ", ranks, " of ", world_.size(),
             " ranks, so the others leave"),
         world_.rank() < ranks ? 0 : SIGTERM);
}

MemoryReport Trainer::Loop::memory() const {
  MemoryReport memory = replica_.memory();
  if (saver_) memory.copies = saver_->copies();
  if (options_.copies) memory.copies += options_.copies->bytes();
  return memory;
}

// Updates the noise scale, but only after a full step of several micro-batches whose gradients were
// measured and that was not skipped.
void Trainer::Loop::observe_noise(uint64_t samples) {
  const StepResult& result = results_.back();
  if (result.micro_batch_square == 0 || result.skipped || samples != options_.batch) return;
  if (options_.micro_batch >= options_.batch) return;
  noise_scale_.add(result.micro_batch_square, result.micro_batch_samples,
                   result.gradient_norm * result.gradient_norm,
                   static_cast<double>(options_.batch));
  report_.noise_scale = noise_scale_.value();
}

void Trainer::Loop::run_to_flush() {
  const Clock::time_point before = Clock::now();
  const std::chrono::nanoseconds processor_before = processor_time();
  const auto waited_before = replica_.waited();
  const std::array<double, kAxes> bytes_before = replica_.bytes_by_axis();
  const uint64_t last = next_flush(options_, done_ + 1, feed_.steps());
  const TraceSpan span(tracing(), name_of_steps(done_ + 1, last), TraceCategory::step);
  StepsDone done = options_.profile ? profile_steps(done_ + 1, last) : run_steps(done_ + 1, last);
  const std::chrono::nanoseconds taken = Clock::now() - before;
  samples_ += done.samples;
  waited_ += replica_.waited() - waited_before;
  elapsed_.clear();
  for (const StepResult& result : done.results) {
    elapsed_.push_back(report_.elapsed + (result.ended ? *result.ended - before : taken));
  }
  elapsed_.back() = report_.elapsed += taken;
  report_.bytes_by_axis = replica_.bytes_by_axis();
  report_.bytes_sent = 0;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    double& bytes = report_.bytes_by_axis[axis];
    bytes = (bytes - bytes_before[axis]) / static_cast<double>(last - done_);
    report_.bytes_sent += bytes;
  }
  report_.memory = memory();
  report_.samples_per_second = static_cast<double>(samples_) / seconds(report_.elapsed);
  report_.step_samples_per_second = static_cast<double>(done.samples) / seconds(taken);
  report_.processor_seconds =
      seconds(processor_time() - processor_before) / static_cast<double>(last - done_);
  report_.flops_per_second = report_.samples_per_second * model_.flops_per_sample();
  report_.waiting_share = seconds(waited_) / seconds(report_.elapsed);
  results_ = std::move(done.results);
  done_ = last;
  observe_noise(done.samples);
}

std::optional<StepReport> Trainer::Loop::next() {
  if (reported_ == done_) {
    if (saver_) saver_->poll();
    if (due(options_.checkpoint_every, done_) && saver_->saved() < done_) save_done();
    if (done_ == feed_.steps()) return std::nullopt;
    stopped_by_ = agreed_stop(done_);
    if (stopped_by_ != 0) return std::nullopt;
    leave_as_recorded();
    keep_in_memory(options_.copy_every);
    run_to_flush();
  }
  const size_t index = results_.size() - (done_ - reported_);
  report_.result = results_[index];
  report_.elapsed = elapsed_[index];
  report_.step = ++reported_;
  report_.learning_rate = options_.schedule.at(static_cast<int64_t>(reported_));
  report_.epochs = feed_.epochs(reported_);
  report_.validation.reset();
  if (due(options_.validate_every, reported_)) {
    report_.validation = validate();
    save_if_best(*report_.validation);
  }
  return report_;
}

TrainResult Trainer::Loop::finish() {
  TrainResult result{.resumed_at = resumed_at_, .step = done_, .stopped_by = stopped_by_};
  if (const RunDirectory* directory = origin_.directory()) result.run = directory->run();
  result.epochs = feed_.epochs(done_);
  result.samples_per_second = report_.samples_per_second;
  result.waiting_share = report_.waiting_share;
  const bool ended = done_ == feed_.steps();
  if (ended && options_.keep_best) {
    result.validation = validate();
    save_if_best(result.validation);
  }
  if (saver_) {
    if (saver_->saved() < done_) save_done();
    saver_->finish();
    result.checkpoints = saver_->saves();
    result.checkpoint_seconds = seconds(saver_->lost());
  }
  if (ended && !options_.keep_best) result.validation = validate();
  if (!options_.trace.empty()) write_trace(world_, trace_, options_.trace);
  result.ranks =
      reports_of_ranks(replica_, done_ - resumed_at_,
                       {.communication = seconds(waited_), .data = seconds(feeds_->waited())});
  if (replica_.has_servers()) result.digest = digest_of_values(model_);
  if (options_.digest) result.digests = digests_of_ranks(replica_, model_);
  result.memory = memory();
  result.process_bytes = proportional_set_size();
  result.pipeline = replica_.report_pipeline();
  if (options_.profile) result.profile = profiler_.report(model_);
  result.factors = replica_.factors();
  finished_ = true;
  return result;
}

}  // namespace tutti::training
