#include "tools/tutti/train_options.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/data/image_set.h"
#include "training/models/gpt.h"
#include "training/models/mlp_model.h"

namespace tutti::tool {
namespace {

using training::BatchScaling;
using training::Compression;
using training::OptimizerKind;
using Decay = training::LearningRateSchedule::Decay;

bool is_resnet(const ModelOptions& options) { return options.kind == "resnet"; }
bool is_gpt(const ModelOptions& options) { return options.kind == "gpt2"; }

// A name out of a few, and what it stands for.
template <typename Value>
Value named(const std::string& name,
            const std::vector<std::pair<std::string_view, Value>>& values) {
  for (const auto& [known, value] : values) {
    if (known == name) return value;
  }
  throw Error(ErrorCode::internal, cat("unknown name ", name));
}

void one_of(CLI::Option* option, std::vector<std::string> names) {
  option->check(CLI::IsMember(std::move(names)).description(""))
      ->type_name("NAME")
      ->capture_default_str();
}

void add_run(CLI::App& command, TrainCommand& options) {
  training::TrainOptions& training = options.training;
  command
      .add_option("--data", options.data,
                  "text files, directories of them, or token files (.bin); for resnet a "
                  "directory with MNIST's four files")
      ->required()
      ->type_name("PATH");
  command.add_option("--validation", options.validation,
                     "a token file to validate on (default: the last tenth of the data)");
  command.add_option("--data-weights", training.data_weights,
                     "a weight for each --data: each is a data set of its own");
  command.add_option("--ranks,-n", options.ranks, "processes on this host (default: its cores)")
      ->check(CLI::Range(1, 65536).description(""));
  command.add_option("--steps", options.steps, "optimizer steps (default: 200)");
  command.add_option("--epochs", options.epochs, "instead of --steps: times through the data");
  command.add_option("--batch", options.batch,
                     "samples per step over all ranks (default: 1536; gpt2: 32; resnet: 128)");
  command.add_option("--micro-batch", options.micro_batch,
                     "samples of one forward and backward pass (default: 32; gpt2: 8; resnet: 64)");
  command.add_option("--accumulate", options.accumulate,
                     "instead of --batch: micro-batches of each rank in a step");
  command.add_option("--seed", training.seed, "of initial values, samples and dropout")
      ->capture_default_str();
  command.add_option("--workers", training.workers, "threads of each rank that read data ahead")
      ->capture_default_str();
}

void add_optimizer(CLI::App& command, TrainCommand& options) {
  constexpr auto kGroup = "Optimizer";
  training::TrainOptions& training = options.training;
  one_of(command.add_option("--optimizer", options.optimizer, "adamw, sgd, lamb or lars"),
         {"adamw", "sgd", "lamb", "lars"});
  command.add_option("--lr", options.learning_rate,
                     "peak learning rate (default: adamw 0.006, gpt2 0.001, resnet 0.003; sgd 0.3, "
                     "gpt2 and resnet 0.1; lamb 0.01; lars 1)");
  one_of(command.add_option("--schedule", options.schedule, "of the learning rate after warm-up"),
         {"cosine", "linear", "constant"});
  command.add_option("--warmup", training.schedule.warmup_steps, "steps of linear warm-up")
      ->capture_default_str();
  command.add_option("--weight-decay", options.weight_decay,
                     "on matrices (default: adamw 0.01, gpt2 0.1; lamb 0.01; lars 0.0001; sgd 0)");
  command.add_option("--momentum", training.momentum, "of sgd and lars")->capture_default_str();
  command.add_option("--beta1", training.beta1, "of adamw and lamb")->capture_default_str();
  command.add_option("--beta2", training.beta2, "of adamw and lamb")->capture_default_str();
  command.add_option("--clip", options.clip,
                     "the largest norm of all gradients together (gpt2: 1; 0: none)");
  one_of(command.add_option("--rate-scaling", options.rate_scaling,
                            "how --lr grows with batch / --base-batch"),
         {"none", "linear", "sqrt"});
  command.add_option("--base-batch", options.base_batch, "the batch that --lr is right for");
  for (CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    for (const char* own :
         {"--optimizer", "--lr", "--schedule", "--warmup", "--weight-decay", "--momentum",
          "--beta1", "--beta2", "--clip", "--rate-scaling", "--base-batch"}) {
      if (name == own) option->group(kGroup);
    }
  }
}

void add_layout(CLI::App& command, TrainCommand& options) {
  constexpr auto kGroup = "Memory and parallelism";
  training::ReplicaOptions& replica = options.training.replica;
  command
      .add_option("--zero", replica.storage.stage,
                  "ZeRO stage: 0 keeps everything on every rank; 1 cuts optimizer state into "
                  "shards, 2 gradients too, 3 parameters too")
      ->check(CLI::Range(0, 3).description(""))
      ->capture_default_str()
      ->group(kGroup);
  auto* precision = command.add_option("--precision", options.precision,
                                       "of parameters, activations and gradients; the optimizer "
                                       "works on fp32 masters");
  one_of(precision, {"f32", "float32", "fp32", "bf16", "bfloat16", "f16", "fp16", "float16"});
  precision->group(kGroup);
  command
      .add_option("--loss-scale", options.loss_scale,
                  "of fp16: dynamic, none, or the first scale, a number")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_flag("--stochastic-rounding", replica.stochastic_rounding,
                "round bf16 parameters up or down by chance")
      ->group(kGroup);
  auto* recompute = command.add_option(
      "--recompute,--activation-checkpointing", options.recompute,
      "activations that backward computes anew: none, selective (normalizations and activation "
      "functions), or full (all but each block's output)");
  one_of(recompute, {"none", "selective", "full"});
  recompute->group(kGroup);
  command.add_option("--bucket-mb", options.bucket_mib, "MiB of gradients summed in one call")
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--no-overlap", options.no_overlap, "sum gradients when backward stands still")
      ->group(kGroup);
  auto* compression =
      command.add_option("--compression", options.compression, "of gradients in stage 0");
  one_of(compression, {"none", "bf16", "fp16", "powersgd"});
  compression->group(kGroup);
  command.add_option("--compression-rank", options.training.compression_rank, "of powersgd")
      ->capture_default_str()
      ->group(kGroup);
}

void add_output(CLI::App& command, TrainCommand& options) {
  constexpr auto kGroup = "Output";
  training::TrainOptions& training = options.training;
  command.add_option("--json", options.json, "write each step and a summary, one JSON a line")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--plot", options.plot, "draw the losses")
      ->type_name("FILE.svg")
      ->group(kGroup);
  command
      .add_option("--trace", training.trace,
                  "write what each rank did when, for Perfetto or chrome://tracing")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--validate-every", training.validate_every, "steps (default: at the end)")
      ->group(kGroup);
  command.add_option("--checkpoint", training.checkpoint, "save at the end, in this directory")
      ->type_name("DIR")
      ->group(kGroup);
  command.add_option("--checkpoint-every", training.checkpoint_every, "save every so many steps")
      ->group(kGroup);
  command.add_option("--keep", training.keep, "checkpoints to keep; 0: all")
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--resume", training.resume, "go on where the latest checkpoint was saved")
      ->group(kGroup);
  command
      .add_option("--initial", training.initial,
                  "parameters to start from (Hugging Face's GPT-2 files, or our own export)")
      ->type_name("FILE.safetensors")
      ->group(kGroup);
}

training::GptConfig gpt_config(const ModelOptions& options, bool selective) {
  training::GptConfig config;
  config.layers = options.layers.value_or(config.layers);
  config.heads = options.heads.value_or(config.heads);
  config.width = options.width.value_or(config.width);
  config.context = options.context.value_or(config.context);
  config.vocabulary = options.vocabulary.value_or(config.vocabulary);
  config.hidden = options.hidden.value_or(config.hidden);
  config.norm = options.norm == "rms" ? training::NormKind::rms : training::NormKind::layer;
  config.mlp = options.mlp == "swiglu" ? training::MlpKind::swiglu : training::MlpKind::gelu;
  config.positions =
      options.positions == "rope" ? training::Positions::rope : training::Positions::learned;
  config.tied = !options.untied;
  config.bias = !options.no_bias;
  config.dropout = options.dropout;
  config.selective_recomputation = selective;
  return config;
}

double default_rate(const TrainCommand& options) {
  const bool gpt = is_gpt(options.model);
  if (options.optimizer == "sgd") return gpt || is_resnet(options.model) ? 0.1 : 0.3;
  if (options.optimizer == "lamb") return 0.01;
  if (options.optimizer == "lars") return 1;
  return gpt ? 1e-3 : is_resnet(options.model) ? 3e-3 : 6e-3;
}

double default_decay(const TrainCommand& options) {
  if (options.optimizer == "sgd") return 0;
  if (options.optimizer == "lars") return 1e-4;
  return options.optimizer == "adamw" && is_gpt(options.model) ? 0.1 : 0.01;
}

void settle_precision(TrainCommand& options) {
  training::ReplicaOptions& replica = options.training.replica;
  replica.storage.dtype = parse_dtype(options.precision).value();
  if (replica.storage.dtype != DType::f16 || options.loss_scale == "none") return;
  replica.loss_scaling.emplace();
  if (options.loss_scale == "dynamic") return;
  try {
    replica.loss_scaling->initial_scale = std::stod(options.loss_scale);
  } catch (const std::exception&) {
    throw Error(ErrorCode::invalid_argument, cat("the loss scale cannot be ", options.loss_scale),
                {.where = "--loss-scale", .remedy = "give dynamic, none or a number"});
  }
}

// The run's size: steps, samples, micro-batches.
void settle_run(TrainCommand& options, int ranks, uint64_t examples) {
  training::TrainOptions& training = options.training;
  const bool gpt = is_gpt(options.model);
  const bool resnet = is_resnet(options.model);
  if (options.batch && options.accumulate) {
    throw Error(ErrorCode::invalid_argument, "both --batch and --accumulate were given",
                {.remedy = "give one: a step has ranks x accumulate x micro-batch samples"});
  }
  if (options.epochs && options.steps) {
    throw Error(ErrorCode::invalid_argument, "both --steps and --epochs were given",
                {.remedy = "give one of them"});
  }
  const auto positive = [](const char* what, int64_t value) {
    if (value >= 1) return static_cast<uint64_t>(value);
    throw Error(ErrorCode::invalid_argument, cat("the ", what, " cannot be ", value),
                {.remedy = "give at least 1"});
  };
  const auto micro_batch = options.micro_batch.value_or(gpt ? 8 : resnet ? 64 : 32);
  training.micro_batch = positive("micro-batch", micro_batch);
  training.batch = positive("global batch", options.batch.value_or(gpt ? 32 : resnet ? 128 : 1536));
  if (options.accumulate) {
    training.batch = static_cast<uint64_t>(ranks) * training.micro_batch *
                     positive("number of micro-batches to accumulate", *options.accumulate);
  }
  training.samples = positive("number of steps", options.steps.value_or(200)) * training.batch;
  if (options.epochs) {
    const double samples = std::ceil(*options.epochs * static_cast<double>(examples));
    training.samples = positive("number of samples", static_cast<int64_t>(samples));
  }
  positive("base batch", options.base_batch.value_or(1));
  const uint64_t together = static_cast<uint64_t>(ranks) * training.micro_batch;
  if (options.model.sync_batch_norm &&
      (training.batch % together != 0 || training.samples % training.batch != 0)) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("with --sync-bn every rank must have as many micro-batches as the others: ",
            training.samples, " samples in steps of ", training.batch, " on ", ranks,
            " ranks are not cut evenly into micro-batches of ", training.micro_batch),
        {.remedy = "give --steps, and a --batch that is a multiple of ranks x micro-batch"});
  }
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  constexpr auto kGroup = "Model";
  const auto add = [&](const char* name, auto& value, const char* meaning) {
    return command.add_option(name, value, meaning)->group(kGroup);
  };
  one_of(add("--model", options.kind, "mlp (of the last tokens), gpt2 or resnet (images)"),
         {"mlp", "gpt2", "resnet"});
  add("--context", options.context, "tokens that the model sees (default: 8; gpt2: 128)");
  add("--layers", options.layers, "hidden layers, or blocks (default: 1; gpt2: 4)");
  add("--hidden", options.hidden, "values per hidden layer (default: 256; gpt2: 4 x width)");
  add("--embedding", options.embedding, "mlp: values per token (default: 32)");
  add("--heads", options.heads, "gpt2: of the attention (default: 4)");
  add("--width", options.width, "gpt2: values per position (default: 128)");
  add("--vocabulary", options.vocabulary, "kinds of tokens (default: as the data has)");
  one_of(add("--norm", options.norm, "gpt2: layer or rms"), {"layer", "rms"});
  one_of(add("--mlp", options.mlp, "gpt2: gelu or swiglu"), {"gelu", "swiglu"});
  one_of(add("--positions", options.positions, "gpt2: learned or rope"), {"learned", "rope"});
  command.add_flag("--untied", options.untied, "gpt2: an output layer apart from the embedding")
      ->group(kGroup);
  command.add_flag("--no-bias", options.no_bias, "gpt2: linear layers without")->group(kGroup);
  add("--dropout", options.dropout, "gpt2: share of values")->capture_default_str();
  add("--blocks", options.blocks, "resnet: of each stage (default: 1 1 1)");
  add("--widths", options.widths, "resnet: channels of each stage (default: 16 32 64)");
  command.add_flag("--sync-bn", options.sync_batch_norm, "resnet: batch statistics over all ranks")
      ->group(kGroup);
}

}  // namespace

void add_train_options(CLI::App& command, TrainCommand& options) {
  options.training.beta2 = 0.99;  // forgets within some hundred steps: short runs profit
  options.training.schedule.warmup_steps = 10;
  options.training.schedule.final_fraction = 0.1;
  add_run(command, options);
  add_model_options(command, options.model);
  add_optimizer(command, options);
  add_layout(command, options);
  add_output(command, options);
}

std::unique_ptr<training::Model> make_model(const TrainCommand& options,
                                            training::StatisticsReducer* reducer) {
  const ModelOptions& model = options.model;
  if (is_resnet(model)) {
    training::ResNetConfig config = model.images;
    config.blocks = model.blocks;
    config.widths = model.widths;
    return std::make_unique<training::ResNet>(config, model.sync_batch_norm ? reducer : nullptr);
  }
  if (is_gpt(model)) {
    return std::make_unique<training::Gpt>(gpt_config(model, options.recompute == "selective"));
  }
  training::MlpModelConfig config;
  config.context = model.context.value_or(config.context);
  config.layers = model.layers.value_or(config.layers);
  config.hidden = model.hidden.value_or(config.hidden);
  config.embedding = model.embedding.value_or(config.embedding);
  config.vocabulary = model.vocabulary.value_or(config.vocabulary);
  return std::make_unique<training::MlpModel>(config);
}

LoadedData load_data(TrainCommand& options) {
  LoadedData loaded;
  if (is_resnet(options.model)) {
    for (const std::string& path : options.data) {
      auto images = std::make_unique<training::ImageSet>(path);
      options.model.images.height = images->height();
      options.model.images.width = images->width();
      options.model.images.classes = std::max(images->classes(), int64_t{2});
      loaded.sets.push_back(std::move(images));
    }
    return loaded;
  }
  int64_t vocabulary = 256;
  const auto add = [&](training::Tokens tokens) {
    const int64_t context = options.model.context.value_or(is_gpt(options.model) ? 128 : 8);
    if (is_gpt(options.model)) {
      loaded.sets.push_back(std::make_unique<training::TokenWindows>(std::move(tokens), context,
                                                                     options.training.seed));
    } else {
      loaded.sets.push_back(std::make_unique<training::NextToken>(std::move(tokens), context));
    }
  };
  const bool files = std::ranges::all_of(
      options.data, [](const std::string& path) { return path.ends_with(".bin"); });
  if (!files) {
    std::vector<std::vector<std::string>> groups = {options.data};
    if (!options.training.data_weights.empty()) {
      groups.clear();
      for (const std::string& path : options.data) groups.push_back({path});
    }
    for (const std::vector<std::string>& group : groups) {
      training::TextData text = training::load_text(group);
      loaded.text_bytes += text.bytes.size();
      if (groups.size() == 1) loaded.bigram_entropy = training::bigram_entropy(text.bytes);
      add(training::Tokens(std::move(text)));
    }
  } else {
    for (const std::string& path : options.data) {
      training::TokenFile file(path);
      for (const uint16_t token : file.tokens()) {
        vocabulary = std::max<int64_t>(vocabulary, token + 1);
      }
      std::optional<training::TokenFile> validation;
      if (!options.validation.empty()) validation.emplace(options.validation);
      add(training::Tokens(std::move(file), std::move(validation)));
    }
    constexpr int64_t kGpt2Tokens = 50257;
    if (vocabulary > 256) vocabulary = std::max(vocabulary, kGpt2Tokens);
  }
  if (!options.model.vocabulary) options.model.vocabulary = vocabulary;
  return loaded;
}

std::vector<const training::DataSet*> LoadedData::views() const {
  std::vector<const training::DataSet*> views;
  for (const auto& set : sets) views.push_back(set.get());
  return views;
}

uint64_t LoadedData::examples() const {
  uint64_t sum = 0;
  for (const auto& set : sets) sum += set->size();
  return sum;
}

void settle(TrainCommand& options, int ranks, uint64_t examples) {
  training::TrainOptions& training = options.training;
  training::ReplicaOptions& replica = training.replica;
  settle_run(options, ranks, examples);
  settle_precision(options);
  training.optimizer = named<OptimizerKind>(options.optimizer, {{"adamw", OptimizerKind::adamw},
                                                                {"sgd", OptimizerKind::sgd},
                                                                {"lamb", OptimizerKind::lamb},
                                                                {"lars", OptimizerKind::lars}});
  training.schedule.decay = named<Decay>(
      options.schedule,
      {{"cosine", Decay::cosine}, {"linear", Decay::linear}, {"constant", Decay::constant}});
  const auto scaling = named<BatchScaling>(options.rate_scaling, {{"none", BatchScaling::none},
                                                                  {"linear", BatchScaling::linear},
                                                                  {"sqrt", BatchScaling::sqrt}});
  const double rate = options.learning_rate.value_or(default_rate(options));
  if (!(rate > 0)) {
    throw Error(ErrorCode::invalid_argument, cat("the learning rate cannot be ", rate),
                {.where = "--lr", .remedy = "give a number above 0"});
  }
  training.schedule.peak =
      training::scaled_rate(rate, static_cast<double>(training.batch),
                            options.base_batch ? static_cast<double>(*options.base_batch)
                                               : static_cast<double>(training.batch),
                            scaling);
  training.weight_decay = options.weight_decay.value_or(default_decay(options));
  const double clip = options.clip.value_or(is_gpt(options.model) ? 1 : 0);
  if (clip > 0) replica.clip = clip;
  training.compression =
      named<Compression>(options.compression, {{"none", Compression::none},
                                               {"bf16", Compression::bf16},
                                               {"fp16", Compression::f16},
                                               {"powersgd", Compression::powersgd}});
  replica.seed = training.seed;
  replica.runner.seed = training.seed;
  replica.runner.checkpoint_units = options.recompute == "full";
  replica.data_parallel.overlap = !options.no_overlap;
  const auto bucket =
      options.bucket_mib * (1 << 20) / static_cast<double>(size_of(replica.storage.dtype));
  replica.storage.bucket_elements = std::max<int64_t>(1, static_cast<int64_t>(bucket));
  replica.storage.first_bucket_elements =
      std::max<int64_t>(1, std::min<int64_t>(1 << 16, replica.storage.bucket_elements));
  const uint64_t micro_batches = (training.batch + training.micro_batch - 1) / training.micro_batch;
  replica.storage.whole_gradients = micro_batches > static_cast<uint64_t>(ranks);
  if (training.resume && training.checkpoint.empty()) {
    throw Error(ErrorCode::invalid_argument, "--resume needs a checkpoint to go on from",
                {.remedy = "name its directory: --checkpoint DIR"});
  }
}

}  // namespace tutti::tool
