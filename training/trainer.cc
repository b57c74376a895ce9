#include "training/trainer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "training/checkpoint/run_directory.h"
#include "training/configuration.h"
#include "training/hugging_face/import.h"
#include "training/initial.h"
#include "training/measured_cut.h"
#include "training/model_source.h"
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

}  // namespace

class Trainer::Loop {
 public:
  Loop(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
       const TrainOptions& options, RunConfiguration configuration)
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
        replica_(mesh, model, make_optimizer(options.optimizer),
                 replica_options(options.replica, feed_),
                 [&](const Layout& layout) { return make_hook(options, model, layout); }) {
    if (!options.trace.empty()) replica_.record(trace_);
    options_.schedule.total_steps = static_cast<int64_t>(feed_.steps());
    resumed_at_ = done_ = told_ = saved_ = start();
    feeds_ = feed_.steps_from(done_);
    report_.steps = feed_.steps();
  }
  // A run that fails leaves what each rank has traced so far.
  ~Loop() {
    if (!finished_ && !options_.trace.empty()) write_own_trace(world_, trace_, options_.trace);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::optional<StepReport> next();
  Evaluation validate();
  void save();
  TrainResult finish();

  uint64_t steps() const { return feed_.steps(); }
  uint64_t step() const { return told_; }
  Replica& replica() { return replica_; }

 private:
  std::string first_does(const std::function<std::string()>& work);
  std::string open_directory();
  uint64_t start();
  uint64_t resumed_step(const Json& state) const;
  void save_done();
  struct StepsDone {
    std::vector<StepResult> results;
    uint64_t samples = 0;
  };
  StepsDone run_steps(uint64_t first, uint64_t last);
  void run_to_flush();
  bool due(uint64_t every, uint64_t step) const {
    return every != 0 && step % every == 0 && step < feed_.steps();
  }
  int agreed_stop(uint64_t step);

  Model& model_;
  TrainOptions options_;
  RunConfiguration configuration_;
  Communicator world_;
  Group group_;
  std::optional<RunDirectory> directory_;  // on rank 0, where there is one
  std::string resumed_from_;               // the step's folder; empty: a new run
  Feed feed_;
  Trace trace_;
  Replica replica_;

  std::unique_ptr<Loader<StepFeed>> feeds_;
  uint64_t resumed_at_ = 0;
  uint64_t done_ = 0;   // steps, up to the last flush
  uint64_t told_ = 0;   // of these
  uint64_t saved_ = 0;  // up to this one
  int stopped_by_ = 0;
  bool finished_ = false;
  std::vector<StepResult> results_;  // of the steps up to done_
  StepReport report_;                // of the last one that was told
  uint64_t samples_ = 0;             // since training began here, as are the times
  std::chrono::nanoseconds waited_{0};
};

namespace {

RunStart run_start(const TrainOptions& options) {
  return {.resume = options.resume,
          .or_new = options.resume_or_new,
          .step = options.resume_step,
          .overwrite = options.overwrite};
}

// Whether the run that was saved may go on like this. Returns what people should know.
std::vector<std::string> check_chosen(const ChosenStep& step, const RunConfiguration& now,
                                      const TrainOptions& options) {
  const Manifest& manifest = step.checkpoint.manifest();
  if (manifest.state.contains(kImportedFrom)) return {};  // no run had any
  if (manifest.configuration.empty()) {
    return {
        "the checkpoint, of an earlier format, does not say with which settings it was trained"};
  }
  return check_resumed(manifest.configuration, now, options.allow_changed, step.checkpoint.path());
}

}  // namespace

std::string Trainer::Loop::first_does(const std::function<std::string()>& work) {
  return made_on_all(world_, [&] { return done_by_first(group_, "", work); });
}

// Rank 0 finds out where the run goes on, before anything is computed; nothing is changed yet.
// Returns the folder that is resumed, or "".
std::string Trainer::Loop::open_directory() {
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
uint64_t Trainer::Loop::resumed_step(const Json& state) const {
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
uint64_t Trainer::Loop::start() {
  uint64_t first = 0;
  std::string companions;
  if (!resumed_from_.empty()) {
    first = resumed_step(load_snapshot(replica_, model_, resumed_from_));
  } else if (!options_.initial.empty()) {
    const ModelSource initial = open_model(options_.initial);
    check_initial(model_, *initial.values, options_.initial);
    load_parameters(replica_, *initial.values, options_.initial);
    companions = initial.companions;
  }
  if (options_.checkpoint.empty()) return first;
  first_does([&] {
    directory_->begin();
    if (!companions.empty()) hugging_face::copy_companions(companions, options_.checkpoint);
    return std::string();
  });
  return first;
}

Evaluation Trainer::Loop::validate() {
  const StepFeed feed = feed_.validation(options_.validation_samples);
  return replica_.evaluate(views(feed), static_cast<int64_t>(feed.passes));
}

void Trainer::Loop::save() {
  if (options_.checkpoint.empty()) {
    throw Error(ErrorCode::invalid_argument, "the run has no directory to be saved in",
                {.remedy = "give it one: --checkpoint DIR"});
  }
  if (told_ != done_) {
    throw Error(ErrorCode::invalid_argument,
                cat("step ", told_, " cannot be saved: the pipeline runs on until step ", done_),
                {.remedy = "save after that step, or give --checkpoint-every"});
  }
  if (saved_ < done_) save_done();
}

void Trainer::Loop::save_done() {
  saved_ = done_;
  save_snapshot(replica_, model_,
                {.directory = directory_ ? &*directory_ : nullptr,
                 .step = static_cast<int64_t>(done_),
                 .configuration = configuration_.whole,
                 .state = {{"samples", std::min(done_ * options_.batch, options_.samples)},
                           {"batch", options_.batch},
                           {"seed", options_.seed}},
                 .keep = options_.keep});
}

// Steps [first, last], counted from 1, without a flush in between.
Trainer::Loop::StepsDone Trainer::Loop::run_steps(uint64_t first, uint64_t last) {
  StepsDone done;
  std::vector<StepFeed> taken;
  std::vector<std::vector<MicroBatch>> own;
  std::vector<StepBatches> batches;
  std::vector<double> rates;
  for (uint64_t step = first; step <= last; ++step) {
    taken.push_back(feeds_->next().value());
    const StepFeed& feed = taken.back();
    own.push_back(views(feed));
    batches.push_back({.own = own.back(), .passes = static_cast<int64_t>(feed.passes)});
    rates.push_back(options_.schedule.at(static_cast<int64_t>(step)));
    done.samples += feed.samples;
  }
  done.results = replica_.run(batches, static_cast<int64_t>(first), rates);
  return done;
}

// What any rank was asked, the same everywhere: ranks stop after the same step.
int Trainer::Loop::agreed_stop(uint64_t step) {
  if (!options_.stop_requested) return 0;
  return replica_.largest_on_any_rank(options_.stop_requested(), static_cast<int64_t>(step));
}

void Trainer::Loop::run_to_flush() {
  const Clock::time_point before = Clock::now();
  const auto waited_before = replica_.waited();
  const double bytes_before = replica_.bytes_sent();
  const uint64_t last = next_flush(options_, done_ + 1, feed_.steps());
  StepsDone done = run_steps(done_ + 1, last);
  const std::chrono::nanoseconds taken = Clock::now() - before;
  samples_ += done.samples;
  waited_ += replica_.waited() - waited_before;
  report_.elapsed += taken;
  report_.bytes_sent = (replica_.bytes_sent() - bytes_before) / static_cast<double>(last - done_);
  report_.memory = replica_.memory();
  report_.samples_per_second = static_cast<double>(samples_) / seconds(report_.elapsed);
  report_.step_samples_per_second = static_cast<double>(done.samples) / seconds(taken);
  report_.flops_per_second = report_.samples_per_second * model_.flops_per_sample();
  report_.waiting_share = seconds(waited_) / seconds(report_.elapsed);
  results_ = std::move(done.results);
  done_ = last;
}

std::optional<StepReport> Trainer::Loop::next() {
  if (told_ == done_) {
    if (due(options_.checkpoint_every, done_) && saved_ < done_) save_done();
    if (done_ == feed_.steps()) return std::nullopt;
    stopped_by_ = agreed_stop(done_);
    if (stopped_by_ != 0) return std::nullopt;
    run_to_flush();
  }
  report_.result = results_[results_.size() - (done_ - told_)];
  report_.step = ++told_;
  report_.learning_rate = options_.schedule.at(static_cast<int64_t>(told_));
  report_.epochs = feed_.epochs(told_);
  report_.validation.reset();
  if (due(options_.validate_every, told_)) report_.validation = validate();
  return report_;
}

TrainResult Trainer::Loop::finish() {
  TrainResult result{.resumed_at = resumed_at_, .step = done_, .stopped_by = stopped_by_};
  if (directory_) result.run = directory_->run();
  result.epochs = feed_.epochs(done_);
  result.samples_per_second = report_.samples_per_second;
  result.waiting_share = report_.waiting_share;
  if (!options_.checkpoint.empty() && saved_ < done_) save_done();
  if (!options_.trace.empty()) write_trace(world_, trace_, options_.trace);
  if (done_ == feed_.steps()) result.validation = validate();
  result.memory = replica_.memory();
  result.process_bytes = proportional_set_size();
  result.pipeline = replica_.report_pipeline();
  finished_ = true;
  return result;
}

Trainer::Trainer(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
                 const TrainOptions& options) {
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
  loop_ = std::make_unique<Loop>(mesh, model, data, settled, std::move(configuration));
}

Trainer::~Trainer() = default;

std::optional<StepReport> Trainer::next() { return loop_->next(); }
Evaluation Trainer::validate() { return loop_->validate(); }
void Trainer::save() { loop_->save(); }
TrainResult Trainer::finish() { return loop_->finish(); }
uint64_t Trainer::steps() const { return loop_->steps(); }
uint64_t Trainer::step() const { return loop_->step(); }
Replica& Trainer::replica() { return loop_->replica(); }

void check_directory(const Model& model, const std::vector<const DataSet*>& data,
                     const TrainOptions& options) {
  if (options.checkpoint.empty()) return;
  const auto step = RunDirectory::check(options.checkpoint, run_start(options));
  if (step) check_chosen(*step, configuration_of(model, data, options), options);
}

TrainResult train(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
                  const TrainOptions& options,
                  const std::function<void(const StepReport&)>& on_step) {
  Trainer trainer(mesh, model, data, options);
  while (const std::optional<StepReport> report = trainer.next()) on_step(*report);
  return trainer.finish();
}

}  // namespace tutti::training
