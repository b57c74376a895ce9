#include "training/setup/settle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/settings.h"
#include "base/text.h"
#include "training/optimizers/registry.h"
#include "training/parallel/hooks/selection.h"
#include "training/parallel/mesh.h"
#include "training/parallel/servers/roles.h"
#include "training/pipeline/placement.h"
#include "training/pipeline/plans.h"
#include "training/run/stragglers.h"
#include "training/setup/mix_setting.h"

namespace tutti::training {
namespace {

// number of targets from which the default of --validation-samples follows
constexpr uint64_t kValidationTargets = 65536;

void in_range(const char* option, double value, double least, double most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::invalid_argument, cat(option, " cannot be ", value),
              {.remedy = cat("use a number from ", least, " to ", most)});
}

// Returns true if ranks wait for each other inside each micro-batch (synchronized batch
// normalization).
bool synchronizes(const Json& model) { return model.value("sync_bn", false); }

// Settles the run's size: steps, samples, micro-batches.
void settle_run(RunOptions& options, const Model& model, int ranks, uint64_t examples) {
  TrainOptions& training = options.training;
  const ModelTraits& traits = kind_of(options.model).traits;
  if (options.is_given("training.batch") && options.micro_batches) {
    throw Error(
        ErrorCode::invalid_argument, "both --batch and --micro-batches (--accumulate) were given",
        {.remedy =
             "remove one of them; the batch is data-parallel ranks x micro-batches x micro-batch"});
  }
  if (options.epochs && options.steps) {
    throw Error(ErrorCode::invalid_argument, "both --steps and --epochs were given",
                {.remedy = "remove one of them"});
  }
  const auto positive = [](const char* what, int64_t value) {
    if (value >= 1) return static_cast<uint64_t>(value);
    throw Error(ErrorCode::invalid_argument, cat("the ", what, " cannot be ", value),
                {.remedy = "use at least 1"});
  };
  if (!options.is_given("training.micro_batch")) training.micro_batch = traits.micro_batch;
  if (!options.is_given("training.batch")) training.batch = traits.batch;
  positive("micro-batch", static_cast<int64_t>(training.micro_batch));
  positive("global batch", static_cast<int64_t>(training.batch));
  if (options.micro_batches) {
    const int workers = std::max(1, roles_of(training.replica.sync, ranks).workers());
    training.batch = static_cast<uint64_t>(workers) * training.micro_batch *
                     positive("number of micro-batches", *options.micro_batches);
    options.micro_batches.reset();
  }
  if (!options.epochs && !options.steps) options.steps = 200;
  if (options.steps)
    training.samples = positive("number of steps", *options.steps) * training.batch;
  if (options.epochs) {
    in_range("--epochs", *options.epochs, 0, 1e9);
    const double samples = std::ceil(*options.epochs * static_cast<double>(examples));
    in_range("the number of samples of --epochs", samples, 0, 0x1p62);
    training.samples = positive("number of samples", static_cast<int64_t>(samples));
  }
  const auto targets = static_cast<uint64_t>(model.targets_per_sample());
  if (!options.is_given("output.validation_samples")) {
    training.validation_samples = std::max<uint64_t>(1, kValidationTargets / targets);
  }
  positive("number of samples to validate on", static_cast<int64_t>(training.validation_samples));
  positive("base batch", options.base_batch.value_or(1));
}

void settle_last_rate(RunOptions& options) {
  LearningRateSchedule& schedule = options.training.schedule;
  if (!options.min_rate) return;
  if (options.is_given("optimizer.final_fraction")) {
    throw Error(ErrorCode::invalid_argument, "both --min-lr and --final-fraction were given",
                {.remedy = "remove one of them"});
  }
  if (schedule.decay == LearningRateSchedule::Decay::constant ||
      *options.min_rate > schedule.peak) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("the learning rate cannot decay from ", schedule.peak, " to ", *options.min_rate),
        {.where = "--min-lr",
         .remedy = "use a smaller value than --lr, and a schedule with decay"});
  }
  schedule.final_fraction = *options.min_rate / schedule.peak;
  options.min_rate.reset();
}

// Checks the options of 1-bit Adam, and sets the optimizer to freeze the second moment when the
// warm-up ends.
void settle_one_bit_adam(RunOptions& options) {
  TrainOptions& training = options.training;
  const std::string name = training.optimizer.at("name");
  if (name != "adamw") {
    throw Error(ErrorCode::invalid_argument,
                cat("onebit-adam requires AdamW, whose moments it compresses"),
                {.where = "--compression",
                 .cause = cat("the optimizer is ", name),
                 .remedy = "remove --optimizer, or compress gradients with --compression sign"});
  }
  if (training.replica.clip) {
    throw Error(ErrorCode::invalid_argument, "onebit-adam excludes --clip",
                {.cause = "ranks send moments, from which a step's gradients cannot be scaled",
                 .remedy = "remove --clip"});
  }
  constexpr uint64_t kWarmUp = 100;
  if (!options.is_given("training.compression_warmup")) training.compression_warmup = kWarmUp;
  if (training.compression_warmup == 0) {
    throw Error(ErrorCode::invalid_argument, "onebit-adam requires a warm-up",
                {.where = "--compression-warmup",
                 .cause = "without it the second moment would remain 0",
                 .remedy = "use at least 1 step"});
  }
  training.optimizer["frozen_after"] = training.compression_warmup;
}

// Settles the learning rate and defaults that depend on optimizer and model.
void settle_optimizer(RunOptions& options, const ModelTraits& traits, bool flushed) {
  TrainOptions& training = options.training;
  LearningRateSchedule& schedule = training.schedule;
  const OptimizerKind& kind = optimizer_kind_of(training.optimizer);
  const Json suits = kind.suits(traits);
  for (const auto& [name, value] : suits.items()) {
    if (name != "lr" && !training.optimizer.contains(name)) training.optimizer[name] = value;
  }
  training.optimizer = kind.complete(training.optimizer);
  if (!options.is_given("optimizer.lr")) schedule.peak = suits.at("lr").get<double>();
  if (!(schedule.peak > 0)) {
    throw Error(ErrorCode::invalid_argument, cat("the learning rate cannot be ", schedule.peak),
                {.where = "--lr", .remedy = "use a number above 0"});
  }
  const auto batch = static_cast<double>(training.batch);
  const double base = options.base_batch ? static_cast<double>(*options.base_batch) : batch;
  schedule.peak = scaled_rate(schedule.peak, batch, base, options.rate_scaling);
  options.rate_scaling = BatchScaling::none;  // the rates above include it already
  if (training.optimizer.contains("weight_decay")) {
    training.optimizer["weight_decay"] = scaled_rate(
        training.optimizer["weight_decay"].get<double>(), batch, base, options.decay_scaling);
  }
  options.decay_scaling = BatchScaling::none;
  options.base_batch.reset();
  settle_last_rate(options);
  const bool one_bit = training.compression == Compression::onebit_adam;
  if (!options.is_given("training.clip") && flushed && traits.clip > 0 && !one_bit) {
    training.replica.clip = traits.clip;
  }
  if (one_bit) settle_one_bit_adam(options);
}

void check_is_pipeline_schedule(const std::string& schedule) {
  if (schedule != "cosine" && schedule != "linear" && schedule != "constant") return;
  throw Error(ErrorCode::invalid_argument, cat("unknown pipeline schedule ", schedule),
              {.where = "--schedule",
               .cause = cat(schedule, " is a learning rate schedule"),
               .remedy = cat("use --lr-schedule ", schedule)});
}

// Settles the pipeline's options, and checks them without communication.
void settle_pipeline(RunOptions& options, Model& model, int data_ranks) {
  ReplicaOptions& replica = options.training.replica;
  PipelineOptions& pipeline = replica.pipeline;
  const pipeline::ScheduleKind& kind = pipeline::schedule_named(pipeline.schedule);
  const int stages = options.mesh.pipeline;
  pipeline.schedule = kind.name;
  // The default is two chunks per rank if the schedule supports several and the model has enough
  // units, otherwise one.
  const bool has_two = kind.has_virtual_stages && std::ssize(model.units()) >= 2 * stages;
  if (!options.is_given("parallel.virtual")) pipeline.virtual_stages = has_two ? 2 : 1;
  pipeline::Plans plans(pipeline.schedule, stages, pipeline.virtual_stages);
  const std::vector<int> cut =
      pipeline.cut.empty() ? pipeline::estimated_cut(model, plans.chunks()) : pipeline.cut;
  const auto placement = make_placement(plans.layout(), model, cut, 0);
  check_schedule(replica, placement);
  const MeshShape& mesh = options.mesh;
  check_averages(replica, sums_over_others(model, placement), placement.has_shared_across,
                 stages * mesh.tensor);
  const auto others = static_cast<int>(stages * mesh.of_a_sample() * mesh.expert);
  check_servers(replica, data_ranks * others, others > 1);
  const bool compresses = options.training.compression != Compression::none;
  check_factors(replica, model, placement, compresses);
  if (compresses) {
    check_compression(replica, placement);
    check_patterns(options.training.compression_only, model.parameters().specs());
  }
  if (options.training.measure_cut && mesh.spatial.ranks() > 1) {
    throw Error(ErrorCode::invalid_argument, "--cut measured excludes --spatial",
                {.cause = "a single rank times the model, but images are tiled over several ranks",
                 .remedy = "remove one of them, or give the cut in units"});
  }
  if (options.training.measure_cut && synchronizes(options.model)) {
    throw Error(
        ErrorCode::invalid_argument, "--cut measured excludes --sync-bn",
        {.cause = "a single rank times the model, but batch statistics are shared by all ranks",
         .remedy = "remove one of them, or give the cut in units"});
  }
  if (replica.sync.has_order() && synchronizes(options.model)) {
    throw Error(ErrorCode::invalid_argument,
                cat("--sync ", text_of(replica.sync), " excludes --sync-bn"),
                {.cause = "ranks do not wait for each other's batch statistics",
                 .remedy = "remove one of them"});
  }
  stragglers_in(options.training.straggler);  // throws for an invalid text
  const uint64_t samples = options.training.micro_batch * static_cast<uint64_t>(data_ranks);
  // For a schedule without flushes, plans two steps, because a single step has no delayed weights
  // and supports any number of micro-batches.
  plans.training(static_cast<int64_t>((options.training.batch + samples - 1) / samples),
                 plans.flushed() ? 1 : 2);
}

// Settles how the run starts: as a new run, or resumed from a checkpoint.
void settle_start(RunOptions& options) {
  TrainOptions& training = options.training;
  training.resume = !options.resume.empty();
  training.resume_or_new = options.resume == kNewestStepOrNone;
  training.resume_step.reset();
  const auto step = parse_number<int64_t>(options.resume);
  const bool number = step && *step >= 0;
  if (number) training.resume_step = step;
  const bool word = options.resume == kNewestStep || training.resume_or_new;
  if (training.resume && !number && !word) {
    throw Error(ErrorCode::invalid_argument, cat("unknown step \"", options.resume, '"'),
                {.where = "--resume", .remedy = "use a step number or auto, or no value"});
  }
  const auto needs = [&](const char* option, bool given, const char* what, const char* remedy) {
    if (given) throw Error(ErrorCode::invalid_argument, cat(option, what), {.remedy = remedy});
  };
  const char* directory = "add --checkpoint DIR";
  const bool has_directory = !training.checkpoint.empty();
  needs("--resume", training.resume && !has_directory, " requires a checkpoint directory",
        directory);
  needs("--overwrite", training.overwrite && !has_directory, " requires a checkpoint directory",
        directory);
  needs("--allow-changed", !training.allow_changed.empty() && !training.resume,
        " applies to resumed runs only", "add --resume, or remove the option");
  if (training.resume && !training.resume_or_new && !training.initial.empty()) {
    throw Error(ErrorCode::invalid_argument, "both --resume and --initial were given",
                {.remedy = "remove one of them; each defines the initial parameters"});
  }
}

// Throws for options and models that tensor-parallel ranks do not support.
void check_tensor_ranks(const RunOptions& options, Model& model) {
  if (options.mesh.tensor == 1) return;
  if (options.training.compression != Compression::none) {
    throw Error(ErrorCode::unsupported, "--tp excludes --compression",
                {.cause = "error feedback is kept per parameter, not per shard",
                 .remedy = "remove one of them"});
  }
  const auto is_cut = [](const ParameterSpec& spec) {
    return spec.placement.cut_over().has(Axis::tensor);
  };
  if (takes_mix(options) || std::ranges::any_of(model.parameters().specs(), is_cut)) return;
  throw Error(
      ErrorCode::unsupported,
      cat("model ", kind_of(options.model).name, " does not support tensor parallelism"),
      {.where = "--tp", .remedy = "remove the option, or use gpt2, llama, perceptron or convnet"});
}

// Throws if there are several context ranks, over which the model's samples cannot be divided.
void check_context_ranks(const RunOptions& options, const Model& model) {
  if (options.mesh.context == 1 || model.takes_parts_of_samples()) return;
  throw Error(ErrorCode::unsupported,
              cat("model ", kind_of(options.model).name, " does not support context parallelism"),
              {.where = "--cp", .remedy = "remove the option, or use gpt2 or llama"});
}

// Throws if there are several spatial ranks, over which the model's images cannot be divided.
void check_spatial_ranks(const RunOptions& options, const Model& model) {
  if (options.mesh.spatial.ranks() == 1 || model.takes_tiles()) return;
  throw Error(ErrorCode::unsupported,
              cat("model ", kind_of(options.model).name, " does not support spatial parallelism"),
              {.where = "--spatial", .remedy = "remove the option, or use resnet or unet"});
}

// Throws if there are several expert-parallel ranks, and the model has no experts or gradients are
// compressed.
void check_expert_ranks(const RunOptions& options, Model& model) {
  if (options.mesh.expert == 1) return;
  if (model.expert_load() == nullptr) {
    throw Error(
        ErrorCode::unsupported, cat("model ", kind_of(options.model).name, " has no experts"),
        {.where = "--ep",
         .remedy = "remove the option, or use mixtral, qwen2moe, qwen3moe, olmoe or switch"});
  }
  if (options.training.compression == Compression::none) return;
  throw Error(ErrorCode::unsupported, "--ep excludes --compression",
              {.cause = "error feedback would cover the experts of one rank only",
               .remedy = "remove one of them"});
}

void check_gemm_format(const RunOptions& options) {
  const bool is_decoder = kind_of(options.model).traits.inputs == Inputs::windows;
  if (options.training.replica.runner.gemm_format == GemmFormat::none || is_decoder) return;
  throw Error(ErrorCode::unsupported,
              cat("products of a model ", kind_of(options.model).name,
                  " cannot be computed in a narrow format"),
              {.where = "--gemm-format",
               .remedy = "remove the option, or use gpt2 or a model of the llama family"});
}

constexpr int64_t kSlices = 8;  // default for 1, 2, 4 and 8 tensor-parallel ranks

// Settles the number of slices. They are the leaves of a binary tree, of which each tensor-parallel
// rank has a branch. The default for 3 ranks is 24, for 16 ranks 16.
void settle_slices(RunOptions& options) {
  std::optional<int64_t>& slices = options.training.cut_slices;
  const int64_t ranks = options.mesh.tensor;
  if (!settings().get_bool("TUTTI_DETERMINISTIC")) return slices.reset();
  int64_t odd = ranks;
  while (odd % 2 == 0) odd /= 2;
  const int64_t fitting = std::max(ranks, odd * kSlices);
  if (!slices) slices = fitting;
  const bool branches = *slices % ranks == 0 &&
                        (ranks == 1 || std::has_single_bit(static_cast<uint64_t>(*slices / ranks)));
  if (*slices >= 1 && branches) return;
  throw Error(ErrorCode::invalid_argument,
              cat(*slices, " slices cannot be divided over ", ranks, " tensor-parallel ranks"),
              {.where = "--cut-slices",
               .cause = "each rank must have a power of two of them",
               .remedy = cat("use ", fitting)});
}

// In deterministic mode, makes context ranks compute as tensor-parallel ranks that share rows.
// Tokens are divided between layers and gathered inside them, and each rank has a branch of every
// sum's tree, whose bits do not depend on the number of ranks. If the model or the optimizer cannot
// be divided that way, context ranks divide tokens as outside of deterministic mode.
void settle_context(RunOptions& options, int ranks) {
  if (options.mesh.context == 1 || !settings().get_bool("TUTTI_DETERMINISTIC")) return;
  if (takes_mix(options)) return;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(options.training.optimizer);
  if (optimizer->takes_matrices()) return;
  RunOptions cut = options;
  cut.mesh.tensor *= cut.mesh.context;
  cut.mesh.context = 1;
  cut.sequence_parallel = true;
  try {
    settle_slices(cut);
    const MeshPlace first = mesh_place(cut.mesh, ranks);
    const std::unique_ptr<Model> model = make_model(cut.model, model_context(cut, first));
    check_tensor_ranks(cut, *model);
    for (const ParameterSpec& spec : model->parameters().specs()) optimizer->state_format(spec);
  } catch (const Error&) {
    return;
  }
  options.mesh = cut.mesh;
  options.sequence_parallel = true;
}

// Returns the type of gradients. Sums of several micro-batches are in f32 (ReplicaOptions::passes).
DType gradient_type(const TrainOptions& training, int data_ranks) {
  const auto up = [](uint64_t count, uint64_t parts) { return (count + parts - 1) / parts; };
  const uint64_t micro_batches = up(training.batch, training.micro_batch);
  const int workers = roles_of(training.replica.sync, data_ranks).workers();
  const uint64_t passes = up(micro_batches, static_cast<uint64_t>(workers));
  return passes == 1 ? training.replica.storage.dtype : DType::f32;
}

}  // namespace

void settle(RunOptions& options, int ranks, uint64_t examples) {
  TrainOptions& training = options.training;
  ReplicaOptions& replica = training.replica;
  settle_context(options, ranks);
  const MeshPlace first = mesh_place(options.mesh, ranks);
  const int data_ranks = first.ranks_along(kSampleAxes);
  const ModelTraits& traits = kind_of(options.model).traits;
  settle_slices(options);
  settle_mix(options);
  const std::unique_ptr<Model> model = make_model(options.model, model_context(options, first));
  if (model->slices() == 1) training.cut_slices.reset();
  check_tensor_ranks(options, *model);
  check_context_ranks(options, *model);
  check_spatial_ranks(options, *model);
  check_expert_ranks(options, *model);
  check_gemm_format(options);
  settle_run(options, *model, data_ranks, examples);
  if (replica.storage.dtype != DType::f16) replica.loss_scaling.reset();
  check_rounding(replica);
  check_clients(training);
  constexpr double kAdamsRate = 0.01;
  if (replica.sync.kind == SyncKind::fedadam && !options.is_given("training.outer_lr")) {
    replica.sync.outer_rate = kAdamsRate;
  }
  check_is_pipeline_schedule(replica.pipeline.schedule);
  const bool flushed =
      pipeline::schedule_named(replica.pipeline.schedule).updates == pipeline::Updates::flushed;
  settle_optimizer(options, traits, flushed);
  replica.seed = training.seed;
  replica.runner.seed = training.seed;
  replica.runner.checkpoint_units = options.recompute == "full";
  replica.runner.partition_checkpoints = options.partition_activations;
  in_range("--bucket-mb", options.bucket_mib, 0, 1 << 20);
  in_range("--workers", training.workers, 0, 1024);
  if (training.compression != Compression::none && replica.storage.stage != 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("gradients cannot be compressed in ZeRO stage ", replica.storage.stage),
                {.where = "--compression", .remedy = "remove --compression or --zero"});
  }
  const auto bucket = options.bucket_mib * (1 << 20) /
                      static_cast<double>(size_of(gradient_type(training, data_ranks)));
  replica.storage.bucket_elements = std::max<int64_t>(1, static_cast<int64_t>(bucket));
  replica.storage.first_bucket_elements =
      std::max<int64_t>(1, std::min<int64_t>(1 << 16, replica.storage.bucket_elements));
  settle_start(options);
  settle_pipeline(options, *model, data_ranks);
  training.configuration = written(options);
}

}  // namespace tutti::training
