#include "tools/tutti/train_setup.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/data/image_set.h"
#include "training/models/gpt.h"
#include "training/models/mlp_model.h"
#include "training/parallel/mesh.h"
#include "training/pipeline/placement.h"
#include "training/pipeline/plans.h"

namespace tutti::tool {
namespace {

using training::BatchScaling;
using training::Compression;
using training::OptimizerKind;
using Decay = training::LearningRateSchedule::Decay;

bool is_resnet(const ModelOptions& options) { return options.kind == "resnet"; }
bool is_gpt(const ModelOptions& options) { return options.kind == "gpt2"; }

constexpr uint64_t kValidationTargets = 65536;  // unless --validation-samples says otherwise

// A name out of a few, and what it stands for.
template <typename Value>
Value named(const std::string& name,
            const std::vector<std::pair<std::string_view, Value>>& values) {
  for (const auto& [known, value] : values) {
    if (known == name) return value;
  }
  throw Error(ErrorCode::internal, cat("unknown name ", name));
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
  char* end = nullptr;
  const double scale = std::strtod(options.loss_scale.c_str(), &end);
  replica.loss_scaling->initial_scale = scale;
  if (*end != 0 || !(scale >= 1) || !std::isfinite(scale)) {
    throw Error(
        ErrorCode::invalid_argument, cat("the loss scale cannot be ", options.loss_scale),
        {.where = "--loss-scale", .remedy = "give dynamic, none or a number of at least 1"});
  }
}

void in_range(const char* option, double value, double least, double most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::invalid_argument, cat(option, " cannot be ", value),
              {.remedy = cat("give a number from ", least, " to ", most)});
}

// The run's size: steps, samples, micro-batches.
void settle_run(TrainCommand& options, int ranks, uint64_t examples) {
  training::TrainOptions& training = options.training;
  const bool gpt = is_gpt(options.model);
  const bool resnet = is_resnet(options.model);
  if (options.batch && options.micro_batches) {
    throw Error(ErrorCode::invalid_argument,
                "both --batch and --micro-batches (--accumulate) were given",
                {.remedy = "give one: a step has data-parallel ranks x micro-batches x micro-batch "
                           "samples"});
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
  training.micro_batch =
      positive("micro-batch", options.micro_batch.value_or(default_micro_batch(options.model)));
  training.batch = positive("global batch", options.batch.value_or(gpt ? 32 : resnet ? 128 : 1536));
  if (options.micro_batches) {
    training.batch = static_cast<uint64_t>(ranks) * training.micro_batch *
                     positive("number of micro-batches", *options.micro_batches);
  }
  training.samples = positive("number of steps", options.steps.value_or(200)) * training.batch;
  if (options.epochs) {
    in_range("--epochs", *options.epochs, 0, 1e9);
    const double samples = std::ceil(*options.epochs * static_cast<double>(examples));
    training.samples = positive("number of samples", static_cast<int64_t>(samples));
  }
  // A language model's sample is a whole context.
  const auto targets = static_cast<uint64_t>(gpt ? context_of(options.model) : 1);
  training.validation_samples = std::max<uint64_t>(
      1, options.validation_samples
             ? positive("number of samples to validate on", *options.validation_samples)
             : kValidationTargets / std::max<uint64_t>(1, targets));
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

void settle_cut(TrainCommand& options) {
  std::vector<int>& cut = options.training.replica.pipeline.cut;
  cut.clear();
  options.training.measure_cut = options.cut == "measured";
  if (options.training.measure_cut || options.cut == "estimated") return;
  std::istringstream units(options.cut + ',');
  for (std::string unit; std::getline(units, unit, ',');) {
    int first = 0;
    const auto [end, problem] = std::from_chars(unit.data(), unit.data() + unit.size(), first);
    if (problem != std::errc() || end != unit.data() + unit.size()) {
      throw Error(ErrorCode::invalid_argument, cat("a model cannot be cut at \"", options.cut, '"'),
                  {.where = "--cut",
                   .remedy = "give estimated, measured, or the first unit of each chunk: 0,3,5"});
    }
    cut.push_back(first);
  }
}

void check_is_pipeline_schedule(const std::string& schedule) {
  if (schedule != "cosine" && schedule != "linear" && schedule != "constant") return;
  throw Error(ErrorCode::invalid_argument, cat("there is no pipeline schedule ", schedule),
              {.where = "--schedule",
               .cause = "it is a schedule of the learning rate",
               .remedy = cat("give --lr-schedule ", schedule)});
}

// Says what is wrong with the pipeline before there are ranks.
void settle_pipeline(TrainCommand& options, int data_ranks) {
  training::ReplicaOptions& replica = options.training.replica;
  training::PipelineOptions& pipeline = replica.pipeline;
  const training::pipeline::ScheduleKind& kind =
      training::pipeline::schedule_named(pipeline.schedule);
  const int stages = options.mesh.pipeline;
  const std::unique_ptr<training::Model> model = make_model(options);
  pipeline.schedule = kind.name;
  // Two chunks a rank, where the model has as many units.
  const bool has_two = kind.has_virtual_stages && std::ssize(model->units()) >= 2 * stages;
  pipeline.virtual_stages = options.virtual_stages.value_or(has_two ? 2 : 1);
  training::pipeline::Plans plans(pipeline.schedule, stages, pipeline.virtual_stages);
  const std::vector<int> cut = pipeline.cut.empty()
                                   ? training::pipeline::estimated_cut(*model, plans.chunks())
                                   : pipeline.cut;
  const auto placement = make_placement(plans.layout(), *model, cut, 0);
  check_schedule(replica, placement);
  if (options.training.compression != Compression::none) {
    training::check_compression(placement);
  }
  if (options.training.measure_cut && options.model.sync_batch_norm) {
    throw Error(ErrorCode::invalid_argument, "--cut measured and --sync-bn do not go together",
                {.cause = "one rank times the model alone, whose batch statistics are everybody's",
                 .remedy = "leave one of them out, or give the cut in units"});
  }
  const uint64_t samples = options.training.micro_batch * static_cast<uint64_t>(data_ranks);
  // Without a flush in between: a step alone is not late, and is made with any micro-batches.
  plans.training(static_cast<int64_t>((options.training.batch + samples - 1) / samples),
                 plans.flushed() ? 1 : 2);
}

// Where the run begins: anew, or where another one has ended.
void settle_start(TrainCommand& options) {
  training::TrainOptions& training = options.training;
  training.resume = !options.resume.empty();
  training.resume_or_new = options.resume == kNewestStepOrNone;
  training.resume_step.reset();
  int64_t step = 0;
  const char* end = options.resume.data() + options.resume.size();
  const auto [stop, problem] = std::from_chars(options.resume.data(), end, step);
  const bool number = problem == std::errc() && stop == end && step >= 0;
  if (number) training.resume_step = step;
  const bool word = options.resume == kNewestStep || training.resume_or_new;
  if (training.resume && !number && !word) {
    throw Error(ErrorCode::invalid_argument, cat("there is no step \"", options.resume, '"'),
                {.where = "--resume", .remedy = "give a step's number or auto, or leave it out"});
  }
  const auto needs = [&](const char* option, bool given, const char* what, const char* remedy) {
    if (given) throw Error(ErrorCode::invalid_argument, cat(option, what), {.remedy = remedy});
  };
  const char* directory = "name its directory: --checkpoint DIR";
  const bool has_directory = !training.checkpoint.empty();
  needs("--resume", training.resume && !has_directory, " needs a checkpoint to go on from",
        directory);
  needs("--overwrite", training.overwrite && !has_directory, " needs a run to remove", directory);
  needs("--allow-changed", !training.allow_changed.empty() && !training.resume,
        " is of a run that is resumed", "give --resume, or leave it out");
  if (training.resume && !training.resume_or_new && !training.initial.empty()) {
    throw Error(ErrorCode::invalid_argument, "both --resume and --initial were given",
                {.remedy = "give one: where the parameters come from"});
  }
}
}  // namespace

int64_t default_micro_batch(const ModelOptions& options) {
  return is_gpt(options) ? 8 : is_resnet(options) ? 64 : 32;
}

int64_t context_of(const ModelOptions& options) {
  return options.context.value_or(is_gpt(options) ? 128 : 8);
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
  if (!options.validation.empty() &&
      (options.data.size() != 1 || !options.data.front().ends_with(".bin"))) {
    throw Error(ErrorCode::invalid_argument, "--validation goes with one token file",
                {.remedy = "give one --data FILE.bin, or leave --validation out"});
  }
  if (is_resnet(options.model)) {
    for (const std::string& path : options.data) {
      auto images = std::make_unique<training::ImageSet>(path);
      training::ResNetConfig& sizes = options.model.images;
      if (!loaded.sets.empty() &&
          (sizes.height != images->height() || sizes.width != images->width())) {
        throw Error(ErrorCode::invalid_argument, "the data sets' images differ in size",
                    {.where = path, .remedy = "give data sets of one size"});
      }
      sizes.classes = std::max(loaded.sets.empty() ? 2 : sizes.classes, images->classes());
      sizes.height = images->height();
      sizes.width = images->width();
      loaded.sets.push_back(std::move(images));
    }
    return loaded;
  }
  int64_t vocabulary = 256;
  const auto add = [&](training::Tokens tokens) {
    const int64_t context = context_of(options.model);
    if (is_gpt(options.model)) {
      loaded.sets.push_back(std::make_unique<training::TokenWindows>(std::move(tokens), context,
                                                                     options.training.seed));
    } else {
      loaded.sets.push_back(std::make_unique<training::NextToken>(std::move(tokens), context));
    }
  };
  const auto count = std::ranges::count_if(
      options.data, [](const std::string& path) { return path.ends_with(".bin"); });
  const bool files = count == std::ssize(options.data);
  if (count > 0 && !files) {
    throw Error(ErrorCode::invalid_argument, "texts and token files cannot be mixed",
                {.where = "--data", .remedy = "make token files of the texts: tutti tokenize"});
  }
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
      std::optional<training::TokenFile> validation;
      if (!options.validation.empty()) validation.emplace(options.validation);
      training::Tokens tokens(std::move(file), std::move(validation));
      vocabulary = std::max(vocabulary, tokens.kinds());
      add(std::move(tokens));
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

int wanted_ranks(const TrainCommand& options) {
  if (options.ranks != 0) return options.ranks;
  if (options.mesh.data == 0 && options.mesh.pipeline == 1) return 0;
  return std::max(1, options.mesh.data) * options.mesh.pipeline;
}

void settle(TrainCommand& options, int ranks, uint64_t examples) {
  training::TrainOptions& training = options.training;
  training::ReplicaOptions& replica = training.replica;
  const int data_ranks =
      training::mesh_sizes(options.mesh, ranks)[static_cast<size_t>(training::Axis::data)];
  settle_run(options, data_ranks, examples);
  settle_precision(options);
  training::check_rounding(replica);
  training.optimizer = named<OptimizerKind>(options.optimizer, {{"adamw", OptimizerKind::adamw},
                                                                {"sgd", OptimizerKind::sgd},
                                                                {"lamb", OptimizerKind::lamb},
                                                                {"lars", OptimizerKind::lars}});
  training.schedule.decay = named<Decay>(
      options.rate_schedule,
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
  check_is_pipeline_schedule(replica.pipeline.schedule);
  const bool flushed = training::pipeline::schedule_named(replica.pipeline.schedule).updates ==
                       training::pipeline::Updates::flushed;
  const double clip = options.clip.value_or(is_gpt(options.model) && flushed ? 1 : 0);
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
  in_range("--bucket-mb", options.bucket_mib, 0, 1 << 20);
  in_range("--workers", training.workers, 0, 1024);
  if (training.compression != Compression::none && replica.storage.stage != 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("gradients cannot be compressed in ZeRO stage ", replica.storage.stage),
                {.where = "--compression", .remedy = "leave out --compression or --zero"});
  }
  const auto bucket =
      options.bucket_mib * (1 << 20) / static_cast<double>(size_of(replica.storage.dtype));
  replica.storage.bucket_elements = std::max<int64_t>(1, static_cast<int64_t>(bucket));
  replica.storage.first_bucket_elements =
      std::max<int64_t>(1, std::min<int64_t>(1 << 16, replica.storage.bucket_elements));
  settle_start(options);
  settle_cut(options);
  settle_pipeline(options, data_ranks);
}

}  // namespace tutti::tool
