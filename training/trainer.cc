#include "training/trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/checkpoint/exchange.h"
#include "training/feed.h"
#include "training/measured_cut.h"
#include "training/optimizers/adamw.h"
#include "training/optimizers/lamb.h"
#include "training/optimizers/lars.h"
#include "training/optimizers/sgd.h"
#include "training/parallel/hooks/half_compression.h"
#include "training/parallel/hooks/powersgd.h"
#include "training/parallel/throw_on_all.h"
#include "training/random.h"
#include "training/snapshot.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

class Fingerprint {
 public:
  template <typename... Values>
  void add(const Values&... values) {
    (mix(values), ...);
  }
  uint64_t value() const { return hash_; }

 private:
  template <typename Value>
  void mix(const Value& value) {
    if constexpr (std::is_convertible_v<Value, std::string_view>) {
      for (const char character : std::string_view(value)) mix(character);
      mix('\0');
    } else if constexpr (std::is_floating_point_v<Value>) {
      mix(std::bit_cast<uint64_t>(static_cast<double>(value)));
    } else {
      hash_ = mix_bits(hash_ + static_cast<uint64_t>(value) + 1);
    }
  }

  uint64_t hash_ = 0;
};

// Equal on all ranks if they are about to train the same model on the same data, with the same
// calls to each other.
uint64_t fingerprint(const Model& model, const std::vector<const DataSet*>& data,
                     const TrainOptions& options) {
  Fingerprint print;
  print.add(model.description());
  for (const DataSet* set : data) print.add(set->fingerprint());
  for (const double weight : options.data_weights) print.add(weight);
  print.add(options.samples, options.batch, options.micro_batch, options.seed);
  const LearningRateSchedule& schedule = options.schedule;
  print.add(schedule.decay, schedule.peak, schedule.warmup_steps, schedule.final_fraction);
  print.add(options.optimizer, options.weight_decay, options.momentum, options.beta1,
            options.beta2);
  const ReplicaOptions& replica = options.replica;
  print.add(replica.seed, replica.runner.seed, replica.clip.value_or(0),
            replica.stochastic_rounding);
  const LossScalerOptions scaling = replica.loss_scaling.value_or(LossScalerOptions{});
  print.add(replica.loss_scaling.has_value(), scaling.initial_scale, scaling.growth,
            scaling.backoff, scaling.growth_interval, scaling.hysteresis, scaling.smallest_scale);
  const StorageOptions& storage = replica.storage;
  print.add(storage.stage, storage.dtype, storage.bucket_elements, storage.first_bucket_elements);
  print.add(replica.data_parallel.overlap, replica.data_parallel.allow_unused, options.compression,
            options.compression_rank);
  print.add(options.validate_every, options.validation_samples, options.checkpoint,
            options.checkpoint_every, options.resume, options.initial);
  print.add(options.trace.empty(), replica.runner.checkpoint_units, storage.whole_gradients);
  print.add(replica.pipeline.schedule, replica.pipeline.virtual_stages);
  for (const int first : replica.pipeline.cut) print.add(first);
  print.add(replica.pipeline.cut.size(), options.flush_every, options.measure_cut);
  return print.value();
}

void check_same_everywhere(Communicator& communicator, uint64_t fingerprint) {
  // The maximum of the complements is the complement of the minimum.
  std::array<uint64_t, 2> bounds = {fingerprint, ~fingerprint};
  communicator.all_reduce(std::span<uint64_t>(bounds), ReduceOp::max);
  if (bounds[0] == ~bounds[1]) return;
  throw_on_all(communicator,
               Error(ErrorCode::mismatch, "the ranks do not train the same model",
                     {.where = communicator.describe(communicator.rank()),
                      .cause = "their data or training options differ",
                      .remedy = "give every rank the same files and the same options"}));
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
      const TrainOptions& options)
      : model_(model),
        options_(options),
        feed_(data, {.batch = options.batch,
                     .micro_batch = options.micro_batch,
                     .samples = options.samples,
                     .seed = options.seed,
                     .rank = mesh.place(Axis::data),
                     .ranks = mesh.size(Axis::data),
                     .workers = options.workers,
                     .weights = options.data_weights}),
        replica_(mesh, model, make_optimizer(options), options.replica,
                 [&](const Layout& layout) { return make_hook(options, model, layout); }) {
    if (!options.trace.empty()) replica_.record(trace_);
    options_.schedule.total_steps = static_cast<int64_t>(feed_.steps());
  }

  TrainResult train(const std::function<void(const StepReport&)>& on_step);

 private:
  uint64_t start();
  uint64_t resumed_step(const nlohmann::json& state) const;
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

  Model& model_;
  TrainOptions options_;
  Feed feed_;
  Trace trace_;
  Replica replica_;
};

uint64_t Run::resumed_step(const nlohmann::json& state) const {
  const auto samples = state.value("samples", uint64_t{0});
  const auto batch = state.value("batch", options_.batch);
  const auto seed = state.value("seed", options_.seed);
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument,
                cat("the checkpoint was saved after ", samples, " samples in steps of ", batch,
                    ", with seed ", seed, "; ", what),
                {.where = options_.checkpoint, .remedy = remedy});
  };
  if (batch != options_.batch || seed != options_.seed) {
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
  if (options_.resume) {
    const nlohmann::json state = load_snapshot(replica_, model_, options_.checkpoint);
    return resumed_step(state);
  }
  if (!options_.initial.empty()) {
    load_parameters(replica_, ImportedModel(options_.initial), options_.initial);
  }
  return 0;
}

Evaluation Run::validate() {
  const StepFeed feed = feed_.validation(options_.validation_samples);
  return replica_.evaluate(views(feed), static_cast<int64_t>(feed.passes));
}

void Run::save(uint64_t step) {
  if (options_.checkpoint.empty()) return;
  save_snapshot(replica_, model_, options_.checkpoint, static_cast<int64_t>(step),
                {{"samples", std::min(step * options_.batch, options_.samples)},
                 {"batch", options_.batch},
                 {"seed", options_.seed}},
                options_.keep);
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

TrainResult Run::train(const std::function<void(const StepReport&)>& on_step) {
  TrainResult result;
  const uint64_t first = start();
  result.resumed_at = first;
  const auto steps = feed_.steps_from(first);
  auto waited_before = replica_.waited();
  const Clock::time_point start = Clock::now();
  std::chrono::nanoseconds aside{0};  // validation and checkpoints
  uint64_t samples = 0;
  StepReport report{.steps = feed_.steps()};
  for (uint64_t step = first; step < feed_.steps();) {
    const double bytes_before = replica_.bytes_sent();
    const uint64_t last = next_flush(options_, step + 1, feed_.steps());
    const StepsDone done = run_steps(*steps, step + 1, last);
    samples += done.samples;
    report.bytes_sent = (replica_.bytes_sent() - bytes_before) / static_cast<double>(last - step);
    report.memory = replica_.memory();
    measure(report, start + aside, samples);
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
    if (due(options_.checkpoint_every, step)) save(step);
    aside += Clock::now() - before;
    waited_before += replica_.waited() - waited;
  }
  result.samples_per_second = report.samples_per_second;
  result.waiting_share = report.waiting_share;
  if (report.step > first) save(feed_.steps());
  if (!options_.trace.empty()) write_trace(replica_.world(), trace_, options_.trace);
  result.validation = validate();
  result.memory = replica_.memory();
  result.pipeline = replica_.report_pipeline();
  return result;
}

}  // namespace

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
  check_same_everywhere(world, fingerprint(model, data, options));
  TrainOptions settled = options;
  if (options.measure_cut) {
    const auto& [schedule, virtual_stages, cut] = options.replica.pipeline;
    const int chunks =
        pipeline::Plans(schedule, mesh.size(Axis::pipeline), virtual_stages).chunks();
    settled.replica.pipeline.cut = measured_cut(world, model, data, options, chunks);
  }
  return Run(mesh, model, data, settled).train(on_step);
}

}  // namespace tutti::training
