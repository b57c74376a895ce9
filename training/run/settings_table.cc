// The table of a run's settings: the name, description, limits and variable of each.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/wire_format.h"
#include "training/core/number_text.h"
#include "training/run/configuration.h"

namespace tutti::training {
namespace {

// limit of steps and samples, whose products must fit into 64 bits
constexpr double kMostOfAnything = 1e9;

// Settings that consist of several variables or are parsed from a text.

void describe_precision(Schema& schema, TrainOptions& options) {
  ReplicaOptions& replica = options.replica;
  schema.add("training.precision", replica.storage.dtype,
             {{"f32", DType::f32},
              {"float32", DType::f32},
              {"fp32", DType::f32},
              {"bf16", DType::bf16},
              {"bfloat16", DType::bf16},
              {"f16", DType::f16},
              {"fp16", DType::f16},
              {"float16", DType::f16}},
             "data type of parameters, activations and gradients: f32, bf16 or f16; the optimizer "
             "keeps fp32 master weights");
  schema
      .add("training.gemm_format", replica.runner.gemm_format,
           {{"none", GemmFormat::none},
            {"tf32", GemmFormat::tf32},
            {"fp8", GemmFormat::fp8},
            {"mxfp8", GemmFormat::mxfp8},
            {"nvfp4", GemmFormat::nvfp4}},
           "gpt2 and the llama family: narrow format in which matrix products are emulated: none, "
           "tf32 (10 bits of mantissa), fp8 (E4M3, blocks of 128), mxfp8 (E4M3, blocks of 32) or "
           "nvfp4 (E2M1, blocks of 16). "
           "The dense layers of the blocks round the operands of their products to this format, in "
           "forward and backward")
      .show_default();
  const auto get = [&replica]() -> Json {
    if (replica.storage.dtype != DType::f16) return "dynamic";
    if (!replica.loss_scaling) return "none";
    const double scale = replica.loss_scaling->initial_scale;
    return scale == LossScalerOptions().initial_scale ? "dynamic" : Json(scale).dump();
  };
  const auto set = [&replica](const Json& value) {
    const std::string text = value;
    replica.loss_scaling.reset();
    if (text == "none") return;
    replica.loss_scaling.emplace();
    if (text == "dynamic") return;
    char* end = nullptr;
    const double scale = std::strtod(text.c_str(), &end);
    replica.loss_scaling->initial_scale = scale;
    if (*end == 0 && scale >= 1 && std::isfinite(scale)) return;
    throw Error(ErrorCode::invalid_argument, cat("invalid loss scale ", text),
                {.where = "--loss-scale", .remedy = "use dynamic, none or a number of at least 1"});
  };
  schema
      .add("training.loss_scale", Field::Type::text, get, set,
           "fp16 loss scale: dynamic, none (no loss scaling), or a number (dynamic, with this "
           "initial value)")
      .show_default();
  schema.add("training.stochastic_rounding", replica.stochastic_rounding,
             "bf16 without fp32 master weights: update the parameters with stochastic rounding");
  schema.add("training.nearest_rounding", replica.nearest_rounding,
             "bf16 without fp32 master weights: update the parameters with rounding to "
             "nearest, which loses small updates (for experiments)");
}

void describe_clip(Schema& schema, TrainOptions& options) {
  std::optional<double>& clip = options.replica.clip;
  schema.add(
      "training.clip", Field::Type::number, [&clip]() -> Json { return clip.value_or(0); },
      [&clip](const Json& value) {
        clip.reset();
        if (value > 0) clip = value.get<double>();
      },
      "maximum global norm to which gradients are clipped; 0: no clipping (default: 1 for language "
      "models, 0 for others)");
}

struct NamedCompression {
  std::string_view name;
  Compression compression;
};
constexpr std::array<NamedCompression, 10> kCompressions = {
    {{"none", Compression::none},
     {"bf16", Compression::bf16},
     {"fp16", Compression::f16},
     {"powersgd", Compression::powersgd},
     {"topk", Compression::topk},
     {"mx8", Compression::mx8},
     {"mx4", Compression::mx4},
     {"int8", Compression::int8},
     {"sign", Compression::sign},
     {"onebit-adam", Compression::onebit_adam}}};

// Parses "powersgd:4" and "topk:0.01", which include a number. Returns false if the text is
// invalid.
bool take_compression(TrainOptions& options, const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const auto found =
      std::ranges::find(kCompressions, text.substr(0, colon), &NamedCompression::name);
  if (found == kCompressions.end()) return false;
  options.compression = found->compression;
  if (colon == text.size()) return true;
  const std::string number = text.substr(colon + 1);
  if (options.compression == Compression::powersgd) {
    options.compression_rank = parse_number<int>(number).value_or(0);
    return options.compression_rank >= 1;
  }
  options.compression_fraction = parse_number<double>(number).value_or(0);
  return options.compression == Compression::topk && options.compression_fraction > 0 &&
         options.compression_fraction <= 1;
}

void describe_compression(Schema& schema, TrainOptions& options) {
  const auto get = [&options]() -> Json {
    const std::string name(
        std::ranges::find(kCompressions, options.compression, &NamedCompression::compression)
            ->name);
    return options.compression == Compression::topk
               ? cat(name, ':', shortest_text(options.compression_fraction))
               : name;
  };
  const auto set = [&options](const Json& value) {
    const std::string text = value;
    if (take_compression(options, text)) return;
    throw Error(ErrorCode::invalid_argument, cat("unknown compression ", in_quotes(text)),
                {.where = "--compression",
                 .remedy = "use none, bf16, fp16, powersgd:RANK, topk:FRACTION, mx8, mx4, int8, "
                           "sign or onebit-adam"});
  };
  schema
      .add("training.compression", Field::Type::text, get, set,
           "gradient compression (ZeRO stage 0): none; bf16 or fp16 (16 bits per value); "
           "powersgd:RANK (low-rank factors); topk:FRACTION (the largest elements); mx8, mx4, int8 "
           "or sign (8, 4 or 1 bit per value, with a scale per block); onebit-adam (signs of "
           "Adam's first moment; the second moment is frozen after warm-up). All but bf16 and fp16 "
           "use error feedback")
      .value_name("KIND")
      .show_default();
  schema.add("training.compression_warmup", options.compression_warmup,
             "number of steps before gradient compression begins (default: 0; onebit-adam: 100)");
  schema
      .add("training.compression_only", options.compression_only,
           "names of the parameters whose gradients are compressed, as comma-separated shell "
           "patterns")
      .value_name("PATTERNS")
      .show_default();
}

void describe_sync(Schema& schema, SyncOptions& sync) {
  schema
      .add(
          "training.sync", Field::Type::text, [&sync]() -> Json { return text_of(sync); },
          [&sync](const Json& value) { set_way(sync, value); },
          "synchronization method. allreduce: all-reduce the gradients in every step. Parameter "
          "servers: ps[:S] (synchronous); ssp:B[:S] (stale-synchronous, workers use parameters at "
          "most B steps old); async[:S] (each worker's gradients are applied on arrival). The last "
          "S ranks are dedicated servers; without S every rank is a worker and serves a part. "
          "Local updates with periodic averaging: local:K (local SGD, average every "
          "K steps); post-local:K@STEP (the same from STEP on); diloco:H[,P[,TAU[,ALPHA]]] (outer "
          "optimizer every H steps, in P fragments, whose communication may take TAU steps; ALPHA "
          "is the weight of a rank's own parameters); easgd:K[,ALPHA] (elastic averaging with a "
          "centre every K steps). Decentralized: gossip:GRAPH (average with neighbours in a ring, "
          "exp, random or complete graph); sgp (push-sum); adpsgd (asynchronous gossip). "
          "Federated: fedavg:K[,FRACTION] (rounds of K steps, then the sample-weighted mean over a "
          "fraction of the ranks); fedprox:K,MU[,FRACTION] (with a proximal term); "
          "fedadam:K[,FRACTION] (Adam applied to the mean difference)")
      .value_name("WAY")
      .show_default();
  schema.add("training.outer_lr", sync.outer_rate,
             "diloco, fedadam: learning rate of the outer optimizer (default: diloco 0.7, fedadam "
             "0.01)");
  schema
      .add("training.outer_momentum", sync.outer_momentum,
           "diloco: Nesterov momentum of the outer optimizer")
      .between(0, 1)
      .show_default();
  schema
      .add("training.pull_every", sync.pull_every,
           "async: number of gradients that a worker sends between two reads of the parameters")
      .between(1, kMostOfAnything)
      .show_default();
  schema.add("training.damping", sync.damping,
             "async: divide the learning rate of an update by 1 + its staleness");
  std::vector<std::pair<std::string, WireFormat>> formats;
  for (const WireFormat format : kAllWireFormats) formats.emplace_back(name(format), format);
  schema
      .add("training.outer_wire", sync.wire, std::move(formats),
           "diloco: wire format of the parameter differences")
      .show_default();
  schema.add("training.secure_sums", sync.secure_sums,
             "fedavg, fedprox, fedadam: secure aggregation in fixed point, with pairwise masks "
             "that cancel in the sum");
  const auto every = [&sync]() -> Json {
    if (sync.kind != SyncKind::local || sync.local_after != 0) return nullptr;
    return sync.every;
  };
  schema
      .add(
          "training.average_every", Field::Type::whole, every,
          [&sync](const Json& value) {
            set_way(sync, text_of(averages_every(value.get<int64_t>())));
          },
          "number of updates between averages of the parameters: K is the same as --sync local:K, "
          "and 0 as --sync allreduce")
      .between(0, kMostOfAnything)
      .role(kOnce);
}

void describe_cut(Schema& schema, TrainOptions& options) {
  const auto get = [&options]() -> Json {
    const std::vector<int>& cut = options.replica.pipeline.cut;
    std::string units;
    for (const int first : cut) units += cat(units.empty() ? "" : ",", first);
    return options.measure_cut ? "measured" : cut.empty() ? "estimated" : units;
  };
  const auto set = [&options](const Json& value) {
    const std::string text = value;
    std::vector<int>& cut = options.replica.pipeline.cut;
    cut.clear();
    options.measure_cut = text == "measured";
    if (options.measure_cut || text == "estimated") return;
    for (const std::string& unit : split(text, ',')) {
      if (const auto first = parse_number<int>(unit)) {
        cut.push_back(*first);
        continue;
      }
      throw Error(ErrorCode::invalid_argument,
                  cat("invalid partition of the model ", in_quotes(text)),
                  {.where = "--cut",
                   .remedy = "use estimated, measured, or the first unit of each chunk: 0,3,5"});
    }
  };
  schema
      .add("parallel.cut", Field::Type::text, get, set,
           "partition of the model into pipeline chunks: the first unit of each chunk (0,3,5), "
           "estimated (balance estimated costs), or measured (balance costs that are measured when "
           "the run starts)")
      .value_name("WHERE")
      .show_default();
}

// Groups of settings.

void describe_training(Schema& schema, TrainOptions& options) {
  schema
      .add("data.weights", options.data_weights,
           "sampling weight of each --data source (default: proportional to its size)")
      .flag("--data-weights");
  schema
      .add("data.labels_per_client", options.labels_per_client,
           "non-IID images: number of labels per rank; each sample belongs to one rank; needs a "
           "--sync method with local updates, such as fedavg:K (default: all ranks share all "
           "samples)")
      .flag("--labels-per-client")
      .between(0, 256);
  schema.add("data.document_mask", options.document_mask,
             "gpt2: do not attend across document boundaries");
  schema.add("data.workers", options.workers, "prefetch threads per rank")
      .role(kOwn)
      .show_default();
  schema
      .add("training.batch", options.batch,
           "global batch size: samples per step over all ranks (default: 1536; language models: "
           "32; resnet, perceptron and convnet: 128; unet: 16)")
      .between(0, kMostOfAnything);
  schema
      .add("training.micro_batch", options.micro_batch,
           "micro-batch size: samples per forward and backward pass (default: 32; language models "
           "and unet: 8; resnet, perceptron and convnet: 64)")
      .between(0, kMostOfAnything);
  schema
      .add("training.samples", options.samples,
           "number of samples of the whole run; follows from the number of steps")
      .flag("");
  schema
      .add("training.seed", options.seed,
           "seed of parameter initialization, sample order and dropout")
      .show_default();
  describe_clip(schema, options);
  describe_sync(schema, options.replica.sync);
  describe_precision(schema, options);
  describe_compression(schema, options);
  schema.add("training.compression_rank", options.compression_rank, "rank of the PowerSGD factors")
      .show_default();
  schema
      .add("training.cut_slices", options.cut_slices,
           "with TUTTI_DETERMINISTIC=1: number of slices into which the layers of gpt2, the llama "
           "family and perceptron are divided for computation, so that results are bitwise "
           "independent of --tp (default: 8)")
      .between(1, 65536);
}

void describe_schedule(Schema& schema, TrainOptions& options) {
  using Decay = LearningRateSchedule::Decay;
  LearningRateSchedule& schedule = options.schedule;
  schema.add("optimizer.lr", schedule.peak, "peak learning rate (default: depends on the model)");
  schema.add("optimizer.lr_schedule", schedule.decay,
             {{"cosine", Decay::cosine}, {"linear", Decay::linear}, {"constant", Decay::constant}},
             "decay of the learning rate after warm-up: cosine, linear or constant");
  schema.add("optimizer.warmup", schedule.warmup_steps, "number of linear warm-up steps")
      .between(0, kMostOfAnything)
      .show_default();
  schema
      .add("optimizer.final_fraction", schedule.final_fraction,
           "learning rate of the last step, as a fraction of --lr")
      .show_default();
}

void describe_layout(Schema& schema, TrainOptions& options) {
  ReplicaOptions& replica = options.replica;
  schema
      .add("parallel.schedule", replica.pipeline.schedule,
           "pipeline schedule (see `tutti pipeline --list`)")
      .value_name("NAME")
      .show_default();
  schema
      .add("parallel.virtual", replica.pipeline.virtual_stages,
           "virtual pipeline stages: number of model chunks per rank, for --schedule interleaved "
           "(default: 2)")
      .between(1, 1024);
  schema
      .add("parallel.flush_every", options.flush_every,
           "steps between pipeline flushes (pipedream and pipedream-2bw) or between "
           "synchronizations of all ranks (every --sync but allreduce); losses are reported at a "
           "flush. 0: flush only at checkpoints, at validation and after 1024 steps")
      .between(0, 1024)
      .show_default();
  describe_cut(schema, options);
  schema
      .add("parallel.zero", replica.storage.stage,
           "ZeRO stage: 0 replicates everything; 1 shards optimizer state, 2 also gradients, 3 "
           "also parameters")
      .between(0, 3)
      .show_default();
  schema
      .add("parallel.overlap", replica.data_parallel.overlap,
           "do not overlap gradient all-reduce with backward")
      .flag("--no-overlap", false);
  schema
      .add("parallel.factors", replica.factors.layers,
           {{"none", FactorLayers::none},
            {"auto", FactorLayers::automatic},
            {"all", FactorLayers::all}},
           "dense layers whose weight gradients are sent as two factors, which each rank then "
           "multiplies (ZeRO stages 0 and 1): none, auto (layers for which this sends fewer "
           "bytes) or all")
      .show_default();
  schema
      .add(
          "parallel.offload", replica.storage.offload.kinds,
          "kinds of state to offload to files, which are read shortly before use: optimizer "
          "(states, master weights, and the gradients of ZeRO stages 2 and 3), parameters (ZeRO "
          "stage 3), activations (inputs of the blocks that --recompute full recomputes) (default: "
          "none)")
      .value_name("KINDS")
      .by_commas();
  schema
      .add("parallel.offload_dir", replica.storage.offload.directory,
           "directory of the --offload files, on a local disk; the files are deleted when "
           "the run ends")
      .value_name("DIR");
  schema
      .add("parallel.offload_window", replica.storage.offload.window,
           "maximum amount of the offloaded optimizer state that is in memory at once, in MiB")
      .between(1, 1 << 20)
      .show_default();
  schema
      .add("parallel.straggler", options.straggler,
           "slow down a rank for experiments: with 3:x4, rank 3 takes 4 times as long to compute "
           "gradients")
      .value_name("3:x4");
}

void describe_output(Schema& schema, TrainOptions& options) {
  schema
      .add("output.trace", options.trace,
           "write a timeline of all ranks to this file, for Perfetto or chrome://tracing")
      .value_name("FILE");
  SyncOptions& sync = options.replica.sync;
  schema
      .add("output.record", sync.record,
           "--sync ps, ssp, async and adpsgd: write to this file the order in which the ranks' "
           "updates are applied")
      .value_name("FILE");
  schema
      .add("output.replay", sync.replay,
           "apply updates in the order in this file, which --record wrote; this reproduces the "
           "recorded run bit for bit")
      .value_name("FILE");
  schema
      .add("output.validate_every", options.validate_every,
           "steps between validations (default: only at the end)")
      .between(0, kMostOfAnything);
  schema
      .add("output.validation_samples", options.validation_samples,
           "number of validation samples (default: enough for 65536 predictions)")
      .between(0, kMostOfAnything);
  schema
      .add("checkpoint.directory", options.checkpoint,
           "directory in which checkpoints are saved; the last step is always saved")
      .flag("--checkpoint")
      .value_name("DIR");
  schema
      .add("checkpoint.every", options.checkpoint_every,
           "steps between checkpoints (default: only at the end)")
      .flag("--checkpoint-every")
      .between(0, kMostOfAnything);
  schema.add("checkpoint.keep", options.keep, "number of checkpoints to keep; 0: all")
      .between(0, kMostOfAnything)
      .show_default();
  schema
      .add("checkpoint.async", options.async_checkpoint,
           "write checkpoints in the background, from a copy in memory")
      .flag("--async-checkpoint");
  schema
      .add("checkpoint.keep_best", options.keep_best,
           "also save the step with the lowest validation loss, as DIR/best")
      .flag("--keep-best");
  schema
      .add("checkpoint.initial", options.initial,
           "initial parameters: a Hugging Face GPT-2 file or a file from `tutti export`")
      .value_name("FILE.safetensors");
  schema
      .add("checkpoint.allow_changed", options.allow_changed,
           "names of settings that may differ between a resumed run and the saved run, such as "
           "lr,clip (default: none)")
      .value_name("NAMES")
      .by_commas()
      .role(kOnce);
  schema
      .add("checkpoint.overwrite", options.overwrite,
           "replace an existing run in --checkpoint, once the new run has saved its first "
           "step")
      .role(kOnce);
}

}  // namespace

void describe(Schema& schema, TrainOptions& options) {
  describe_training(schema, options);
  describe_schedule(schema, options);
  describe_layout(schema, options);
  describe_output(schema, options);
  for (Field& field : schema.fields()) {
    const bool layout = !field.key().starts_with("data.") &&
                        !field.key().starts_with("training.") &&
                        !field.key().starts_with("optimizer.");
    if (layout && field.role().empty()) field.role(kLayout);
  }
}

}  // namespace tutti::training
