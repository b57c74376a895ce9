#include "training/trainer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "training/checkpoint/exchange.h"
#include "training/checkpoint/run_directory.h"
#include "training/configuration.h"
#include "training/initial.h"
#include "training/measured_cut.h"
#include "training/optimizers/adamw.h"
#include "training/optimizers/lamb.h"
#include "training/optimizers/lars.h"
#include "training/optimizers/sgd.h"
#include "training/parallel/hooks/half_compression.h"
#include "training/parallel/hooks/powersgd.h"
#include "training/parallel/throw_on_all.h"
#include "training/process_memory.h"
#include "training/snapshot.h"
#include "training/texts.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

std::vector<MicroBatch> views(const StepFeed& feed) {
  std::vector<MicroBatch> views;
  for (const Batch& batch : feed.own) views.push_back(batch.view());
  return views;
}

std::unique_ptr<CommunicationHook> make_hook(const TrainOptions& options, Model& model,
                                             const Layout& layout) {
  switch (options.compression) {
    case Compression::none:
      return nullptr;
    case Compression::bf16:
      return std::make_unique<HalfCompression>(DType::bf16);
    case Compression::f16:
      return std::make_unique<HalfCompression>(DType::f16);
    case Compression::powersgd:
      return std::make_unique<PowerSgd>(
          layout, model.parameters().specs(),
          PowerSgdOptions{.rank = options.compression_rank, .seed = options.seed});
  }
  throw Error(ErrorCode::internal, "unknown compression");
}

// One run, on one rank.
class Run {
 public:
  Run(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
      const TrainOptions& options, Configuration configuration)
      : model_(model),
        options_(options),
        configuration_(std::move(configuration)),
        world_(mesh.world()),
        group_(group_of(world_)),
        resumed_from_(open_directory()),
        feed_(data, {.batch = options.batch,
                     .micro_batch = options.micro_batch,
                     .samples = options.samples,
                     .seed = options.seed,
                     .rank = mesh.place(Axis::data),
                     .ranks = mesh.size(Axis::data),
                     .workers = options.workers,
                     .weights = options.data_weights}),
        replica_(mesh, model, make_optimizer(options), replica_options(options.replica, feed_),
                 [&](const Layout& layout) { return make_hook(options, model, layout); }) {
    if (!options.trace.empty()) replica_.record(trace_);
    options_.schedule.total_steps = static_cast<int64_t>(feed_.steps());
  }

  TrainResult train(const std::function<void(const StepReport&)>& on_step);

 private:
  TrainResult train_steps(const std::function<void(const StepReport&)>& on_step);
  std::string first_does(const std::function<std::string()>& work);
  std::string open_directory();
  uint64_t start();
  uint64_t resumed_step(const Json& state) const;
  Evaluation validate();
  void save(uint64_t step);
  struct StepsDone {
    std::vector<StepResult> results;
    uint64_t samples = 0;
  };
  StepsDone run_steps(Loader<StepFeed>& feeds, uint64_t first, uint64_t last);
  bool due(uint64_t every, uint64_t step) const {
    return every != 0 && step % every == 0 && step < feed_.steps();
  }
  void measure(StepReport& report, Clock::time_point start, uint64_t samples) const;
  int agreed_stop(uint64_t step);

  Model& model_;
  TrainOptions options_;
  Configuration configuration_;
  Communicator world_;
  Group group_;
  std::optional<RunDirectory> directory_;  // on rank 0, where there is one
  std::string resumed_from_;               // the step's folder; empty: a new run
  Feed feed_;
  Trace trace_;
  Replica replica_;
};

RunStart run_start(const TrainOptions& options) {
  return {.resume = options.resume,
          .or_new = options.resume_or_new,
          .step = options.resume_step,
          .overwrite = options.overwrite};
}

// Whether the run that was saved may go on like this. Returns what people should know.
std::vector<std::string> check_chosen(const ChosenStep& step, const Configuration& now,
                                      const TrainOptions& options) {
  const Manifest& manifest = step.checkpoint.manifest();
  if (manifest.configuration.empty()) {
    return {
        "the checkpoint, of an earlier format, does not say with which settings it was trained"};
  }
  return check_resumed(manifest.configuration, now, options.allow_changed, step.checkpoint.path());
}

std::string Run::first_does(const std::function<std::string()>& work) {
  return made_on_all(world_, [&] { return done_by_first(group_, "", work); });
}

// Rank 0 finds out where the run goes on, before anything is computed; nothing is changed yet.
// Returns the folder that is resumed, or "".
std::string Run::open_directory() {
  if (options_.checkpoint.empty()) return "";
  return first_does([&]() -> std::string {
    directory_.emplace(options_.checkpoint, run_start(options_));
    if (!directory_->resumed()) return "";
    for (const std::string& text : check_chosen(*directory_->resumed(), configuration_, options_)) {
      log(LogLevel::warning, cat("the run goes on with other settings: ", text));
    }
    return directory_->resumed()->checkpoint.path();
  });
}

// The steps that were done when it was saved.
uint64_t Run::resumed_step(const Json& state) const {
  const auto samples = state.value("samples", uint64_t{0});
  const auto batch = state.value("batch", options_.batch);
  const auto seed = state.value("seed", options_.seed);
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument,
                cat("the checkpoint was saved after ", samples, " samples in steps of ", batch,
                    ", with seed ", seed, "; ", what),
                {.where = resumed_from_, .remedy = remedy});
  };
  // The configuration says so too, where there is one.
  const bool new_seed =
      std::ranges::find(options_.allow_changed, "seed") != options_.allow_changed.end();
  if (batch != options_.batch || (seed != options_.seed && !new_seed)) {
    refuse(cat("this run takes steps of ", options_.batch, ", with seed ", options_.seed),
           "resume with the batch and the seed it was trained with");
  }
  if (samples > options_.samples) {
    refuse(cat("this run ends after ", options_.samples), "give more --steps or --epochs");
  }
  if (samples == options_.samples) return feed_.steps();
  if (samples % batch != 0) {
    refuse("its last step was a smaller one, at its run's end",
           "start a new run from its export, or resume an earlier step");
  }
  return samples / batch;
}

// The first step to do, from 0.
uint64_t Run::start() {
  uint64_t first = 0;
  if (!resumed_from_.empty()) {
    first = resumed_step(load_snapshot(replica_, model_, resumed_from_));
  } else if (!options_.initial.empty()) {
    const ImportedModel initial(options_.initial);
    check_initial(model_, initial, options_.initial);
    load_parameters(replica_, initial, options_.initial);
  }
  if (options_.checkpoint.empty()) return first;
  first_does([&] {
    directory_->begin();
    return std::string();
  });
  return first;
}

Evaluation Run::validate() {
  const StepFeed feed = feed_.validation(options_.validation_samples);
  return replica_.evaluate(views(feed), static_cast<int64_t>(feed.passes));
}

void Run::save(uint64_t step) {
  if (options_.checkpoint.empty()) return;
  save_snapshot(replica_, model_,
                {.directory = directory_ ? &*directory_ : nullptr,
                 .step = static_cast<int64_t>(step),
                 .configuration = configuration_,
                 .state = {{"samples", std::min(step * options_.batch, options_.samples)},
                           {"batch", options_.batch},
                           {"seed", options_.seed}},
                 .keep = options_.keep});
}

void Run::measure(StepReport& report, Clock::time_point start, uint64_t samples) const {
  report.elapsed = Clock::now() - start;
  report.samples_per_second = static_cast<double>(samples) / seconds(report.elapsed);
  report.flops_per_second = report.samples_per_second * model_.flops_per_sample();
}

// Steps [first, last], counted from 1, without a flush in between.
Run::StepsDone Run::run_steps(Loader<StepFeed>& feeds, uint64_t first, uint64_t last) {
  StepsDone done;
  std::vector<StepFeed> taken;
  std::vector<std::vector<MicroBatch>> own;
  std::vector<StepBatches> batches;
  std::vector<double> rates;
  for (uint64_t step = first; step <= last; ++step) {
    taken.push_back(feeds.next().value());
    const StepFeed& feed = taken.back();
    own.push_back(views(feed));
    batches.push_back(
        {.own = own.back(),
         .passes = static_cast<int64_t>(feed.passes),
         .targets = static_cast<int64_t>(feed.samples) * model_.targets_per_sample()});
    rates.push_back(options_.schedule.at(static_cast<int64_t>(step)));
    done.samples += feed.samples;
  }
  done.results = replica_.run(batches, static_cast<int64_t>(first), rates);
  return done;
}

// What any rank was asked, the same everywhere: ranks stop after the same step.
int Run::agreed_stop(uint64_t step) {
  if (!options_.stop_requested) return 0;
  return replica_.largest_on_any_rank(options_.stop_requested(), static_cast<int64_t>(step));
}

TrainResult Run::train(const std::function<void(const StepReport&)>& on_step) {
  try {
    return train_steps(on_step);
  } catch (...) {
    if (!options_.trace.empty()) write_own_trace(world_, trace_, options_.trace);
    throw;
  }
}

TrainResult Run::train_steps(const std::function<void(const StepReport&)>& on_step) {
  TrainResult result;
  const uint64_t first = start();
  result.resumed_at = first;
  if (directory_) result.run = directory_->run();
  const auto steps = feed_.steps_from(first);
  auto waited_before = replica_.waited();
  const Clock::time_point start = Clock::now();
  std::chrono::nanoseconds aside{0};  // validation and checkpoints
  uint64_t samples = 0;
  StepReport report{.steps = feed_.steps()};
  uint64_t saved = first;
  uint64_t step = first;
  while (step < feed_.steps()) {
    result.stopped_by = agreed_stop(step);
    if (result.stopped_by != 0) break;
    const auto elapsed_before = report.elapsed;
    const double bytes_before = replica_.bytes_sent();
    const uint64_t last = next_flush(options_, step + 1, feed_.steps());
    const StepsDone done = run_steps(*steps, step + 1, last);
    samples += done.samples;
    report.bytes_sent = (replica_.bytes_sent() - bytes_before) / static_cast<double>(last - step);
    report.memory = replica_.memory();
    measure(report, start + aside, samples);
    report.step_samples_per_second =
        static_cast<double>(done.samples) / seconds(report.elapsed - elapsed_before);
    report.waiting_share = seconds(replica_.waited() - waited_before) / seconds(report.elapsed);
    const Clock::time_point before = Clock::now();
    const auto waited = replica_.waited();
    for (size_t i = 0; step < last; ++i) {
      report.step = ++step;
      report.learning_rate = options_.schedule.at(static_cast<int64_t>(step));
      report.result = done.results[i];
      report.validation.reset();
      if (due(options_.validate_every, step)) report.validation = validate();
      on_step(report);
    }
    if (due(options_.checkpoint_every, step)) save(saved = step);
    aside += Clock::now() - before;
    waited_before += replica_.waited() - waited;
  }
  result.samples_per_second = report.samples_per_second;
  result.waiting_share = report.waiting_share;
  result.step = step;
  if (step > saved) save(step);
  if (!options_.trace.empty()) write_trace(world_, trace_, options_.trace);
  if (result.stopped_by == 0) result.validation = validate();
  result.memory = replica_.memory();
  result.process_bytes = proportional_set_size();
  result.pipeline = replica_.report_pipeline();
  return result;
}

}  // namespace

void check_directory(const Model& model, const std::vector<const DataSet*>& data,
                     const TrainOptions& options) {
  if (options.checkpoint.empty()) return;
  const auto step = RunDirectory::check(options.checkpoint, run_start(options));
  if (step) check_chosen(*step, configuration_of(model, data, options).run, options);
}

ReplicaOptions replica_options(ReplicaOptions options, const Feed& feed) {
  options.storage.one_pass = feed.passes() == 1;
  return options;
}

uint64_t next_flush(const TrainOptions& options, uint64_t step, uint64_t steps) {
  const std::string& schedule = options.replica.pipeline.schedule;
  if (pipeline::schedule_named(schedule).updates == pipeline::Updates::flushed) return step;
  // What is learned of steps is learned at a flush, and their data are in memory until then.
  constexpr uint64_t kMostSteps = 1024;
  const uint64_t flush_every =
      options.flush_every == 0 ? kMostSteps : std::min(options.flush_every, kMostSteps);
  uint64_t last = steps;
  for (const uint64_t every : {flush_every, options.validate_every, options.checkpoint_every}) {
    // Steps are counted from 1, so a multiple is the last step of its run.
    if (every != 0) last = std::min(last, (step + every - 1) / every * every);
  }
  return last;
}

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options) {
  const double decay = options.weight_decay;
  switch (options.optimizer) {
    case OptimizerKind::adamw:
      return std::make_unique<AdamW>(AdamWOptions{
          .moments = {.beta1 = options.beta1, .beta2 = options.beta2}, .weight_decay = decay});
    case OptimizerKind::sgd:
      return std::make_unique<Sgd>(SgdOptions{.momentum = options.momentum, .weight_decay = decay});
    case OptimizerKind::lamb:
      return std::make_unique<Lamb>(
          LambOptions{.moments = {.beta1 = options.beta1, .beta2 = options.beta2, .epsilon = 1e-6},
                      .weight_decay = decay});
    case OptimizerKind::lars:
      return std::make_unique<Lars>(
          LarsOptions{.momentum = options.momentum, .weight_decay = decay});
  }
  throw Error(ErrorCode::internal, "unknown optimizer");
}

TrainResult train(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
                  const TrainOptions& options,
                  const std::function<void(const StepReport&)>& on_step) {
  Communicator world = mesh.world();
  RunConfiguration configuration = configuration_of(model, data, options);
  check_same_everywhere(world, configuration);
  TrainOptions settled = options;
  if (options.measure_cut) {
    const auto& [schedule, virtual_stages, cut] = options.replica.pipeline;
    const int chunks =
        pipeline::Plans(schedule, mesh.size(Axis::pipeline), virtual_stages).chunks();
    settled.replica.pipeline.cut = measured_cut(world, model, data, options, chunks);
  }
  return Run(mesh, model, data, settled, std::move(configuration.run)).train(on_step);
}

}  // namespace tutti::training
