#include "training/setup/options.h"

#include <utility>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/optimizers/registry.h"
#include "training/run/configuration.h"
#include "training/setup/aliases.h"
#include "training/setup/flags.h"
#include "training/setup/merge.h"
#include "training/setup/mix_setting.h"
#include "training/setup/stored_model.h"

namespace tutti::training {
namespace {

// limit of steps and samples, whose products must fit into 64 bits
constexpr double kMostOfAnything = 1e9;

void describe_data(Schema& schema, RunOptions& options) {
  schema
      .add("data.files", options.data,
           "text files (also .jsonl, .gz, .zst, .parquet), directories of them, or token files "
           "(.bin). For resnet, perceptron, convnet and unet: a directory with the four MNIST "
           "files (unet: masks instead of labels), or synthetic images: "
           "shapes:HEIGHTxWIDTH[:COUNT[:SEED]]")
      .flag("--data")
      .value_name("PATH");
  schema.add("data.validation", options.validation,
             "token file of validation data (default: the last tenth of the data)");
  schema.add("data.fingerprint", options.fingerprint, "fingerprint of the data").flag("");
}

void describe_steps(Schema& schema, RunOptions& options) {
  schema.add("training.steps", options.steps, "number of optimizer steps (default: 200)")
      .between(0, kMostOfAnything);
  schema.add("training.epochs", options.epochs,
             "number of passes through the data, instead of --steps");
  schema
      .add("training.micro_batches", options.micro_batches,
           "micro-batches per step on each data-parallel rank, instead of --batch")
      .flag("--micro-batches,--accumulate")
      .between(0, kMostOfAnything);
}

void describe_rate(Schema& schema, RunOptions& options) {
  schema.add("optimizer.min_lr", options.min_rate,
             "learning rate of the last step, instead of --final-fraction");
  schema.add("optimizer.rate_scaling", options.rate_scaling,
             {{"none", BatchScaling::none},
              {"linear", BatchScaling::linear},
              {"sqrt", BatchScaling::sqrt}},
             "factor by which --lr is multiplied: none (1), linear (batch size / --base-batch) or "
             "sqrt (square root of that ratio)");
  schema.add("optimizer.decay_scaling", options.decay_scaling,
             {{"none", BatchScaling::none},
              {"linear", BatchScaling::linear},
              {"sqrt", BatchScaling::sqrt}},
             "factor by which --weight-decay is multiplied: none (1), linear (batch size / "
             "--base-batch) or sqrt (square root of that ratio)");
  schema
      .add("optimizer.base_batch", options.base_batch,
           "batch size for which --lr was tuned, for --rate-scaling and --decay-scaling (default: "
           "--batch)")
      .between(0, kMostOfAnything);
}

void describe_grid(Schema& schema, GridShape& grid) {
  static constexpr int kMost = 1024;
  const auto get = [&grid]() -> Json { return cat(grid.rows, 'x', grid.columns); };
  const auto set = [&grid](const Json& value) {
    const std::string text = value;
    const size_t cross = text.find('x');
    const auto rows = parse_number<int>(text.substr(0, cross));
    const auto columns = parse_number<int>(cross == text.npos ? "" : text.substr(cross + 1));
    const auto is_size = [](const auto& number) {
      return number && *number >= 1 && *number <= kMost;
    };
    if (!is_size(rows) || !is_size(columns)) {
      throw Error(ErrorCode::invalid_argument, cat(in_quotes(text), " is not a grid of ranks"),
                  {.where = "--spatial",
                   .remedy = cat("use ROWSxCOLUMNS, each from 1 to ", kMost, ": 2x1")});
    }
    grid = {*rows, *columns};
  };
  schema
      .add("parallel.spatial", Field::Type::text, get, set,
           "resnet and unet: grid of spatially parallel ranks, each of which holds a tile of every "
           "image (2x1: the upper and the lower half)")
      .value_name("ROWSxCOLUMNS")
      .show_default();
}

void describe_parallel(Schema& schema, RunOptions& options) {
  schema
      .add("parallel.dp", options.mesh.data,
           "number of data-parallel ranks (default: the ranks not used by --pp, --tp, --cp and "
           "--spatial)")
      .between(0, 65536);
  schema
      .add("parallel.tp", options.mesh.tensor,
           "number of tensor-parallel ranks. gpt2 and the llama family: attention heads, "
           "feed-forward layers and vocabulary are sharded; perceptron and convnet: layers are "
           "sharded as --mix specifies")
      .between(1, 65536)
      .show_default();
  schema
      .add("parallel.sp", options.sequence_parallel,
           "sequence parallelism: between layers the tokens are sharded over the --tp ranks")
      .flag("--sp,--sequence-parallel");
  schema
      .add("parallel.mix", options.mix,
           "perceptron and convnet: sharding of each layer over the --tp ranks, as one letter per "
           "layer (d,b,m,m), a file with these letters, or auto (the mix with the lowest cost "
           "measured on this host). b (batch): each rank computes a part of the samples; m "
           "(model): a part of the outputs; d (domain, convolutions only): a strip of each image "
           "(default: m for all layers)")
      .value_name("LETTERS|FILE|auto");
  schema
      .add("parallel.tp_overlap", options.overlaps_sums,
           "do not overlap the reduction over the --tp ranks with the matrix multiplication that "
           "produces its rows")
      .flag("--no-tp-overlap", false);
  schema
      .add("parallel.cp", options.mesh.context,
           "gpt2 and the llama family: number of context-parallel ranks, each of which holds a "
           "part of every sample's tokens")
      .between(1, 65536)
      .show_default();
  describe_grid(schema, options.mesh.spatial);
  schema.add("parallel.cp_kind", options.context_kind,
             {{"auto", ContextKind::automatic},
              {"ring", ContextKind::ring},
              {"heads", ContextKind::heads}},
             "context-parallel algorithm: ring (pass keys and values around a ring), heads "
             "(all-to-all between tokens and heads), or auto (the one that sends fewer bytes)");
  schema.add("parallel.partition_activations", options.partition_activations,
             "with --recompute full: shard the kept output of each block over the --tp ranks and "
             "gather it for backward");
  schema
      .add("parallel.loss_chunk", options.loss_chunk,
           "number of tokens whose logits are in memory at a time; backward recomputes the logits "
           "(default: all tokens)")
      .between(0, kMostOfAnything);
  schema
      .add("parallel.ep", options.mesh.expert,
           "mixture-of-experts models: number of expert-parallel ranks, each of which holds a part "
           "of the experts. They are a subset of the data-parallel ranks, or of these and the --cp "
           "or --tp ranks")
      .between(1, 65536)
      .show_default();
  schema.add("parallel.pp", options.mesh.pipeline, "number of pipeline stages")
      .between(1, 65536)
      .show_default();
  schema
      .add("parallel.threads", options.threads,
           "CPU threads per rank; results do not depend on this number (default: the rank's share "
           "of the host's cores)")
      .between(1, 4096);
  schema
      .add("parallel.recompute", options.recompute,
           "activations that backward recomputes: none, selective (normalizations and activation "
           "functions), or full (all but each block's output)")
      .flag("--recompute,--activation-checkpointing")
      .one_of({"none", "selective", "full"});
  schema.add("parallel.bucket_mb", options.bucket_mib, "gradient bucket size in MiB")
      .show_default();
}

std::string group_of(const std::string& key) {
  if (key.starts_with("optimizer.") || key == "training.clip") return "Optimizer";
  if (key.starts_with("output.") || key.starts_with("checkpoint.")) return "Output";
  for (const char* name :
       {"parallel.", "training.precision", "training.loss_scale", "training.stochastic_rounding",
        "training.nearest_rounding", "training.gemm_format", "training.compression"}) {
    if (key.starts_with(name)) return "Memory and parallelism";
  }
  return "";
}

// Returns the members of an optimizer's configuration that only the optimizer reads. The run's
// settings of the same object, such as optimizer.lr, are not included.
Json own_members(const Json& optimizer, const Schema& schema) {
  Json own = Json::object();
  for (const auto& [name, value] : optimizer.items()) {
    if (schema.find("optimizer." + name) == nullptr) own[name] = value;
  }
  return own;
}

void check_kinds(const RunOptions& options, const std::string& where) {
  const Json& optimizer = options.training.optimizer;
  refuse_members_of_other_kinds(options.model, where);
  refuse_members_of_other_kinds(optimizer, where);
  static_cast<void>(kind_of(options.model).complete(options.model));
  static_cast<void>(optimizer_kind_of(optimizer).complete(optimizer));
}

}  // namespace

RunOptions::RunOptions() {
  training.schedule.warmup_steps = 10;
  training.replica.loss_scaling.emplace();
}

void describe(Schema& schema, RunOptions& options) {
  describe_data(schema, options);
  describe_steps(schema, options);
  describe_rate(schema, options);
  describe_parallel(schema, options);
  schema
      .add("checkpoint.resume", options.resume,
           "resume the run in --checkpoint from its newest complete step, or from step STEP; auto: "
           "start a new run if there is none, for launchers that restart ranks")
      .value_name("[STEP|auto]")
      .alone(kNewestStep)
      .role(kOnce);
  describe(schema, options.training);
  for (Field& field : schema.fields()) field.group(group_of(field.key()));
}

void read_options(const Json& configuration, RunOptions& options, const std::string& where) {
  Schema schema;
  describe(schema, options);
  Json rest = configuration;
  try {
    if (const Json stored = stored_model(configuration); stored.is_object()) options.model = stored;
    if (const Json* const model = configuration.find("model")) {
      for (const auto& [name, value] : model->items()) options.model[name] = value;
      rest.erase("model");
    }
    if (const Json* const optimizer = configuration.find("optimizer")) {
      const Json own = own_members(*optimizer, schema);
      for (const auto& [name, value] : own.items()) {
        check_is_setting("optimizer." + name);
        options.training.optimizer[name] = value;
        rest["optimizer"].erase(name);
      }
    }
    check_kinds(options, where);
  } catch (const Error& error) {
    if (where.empty()) throw;
    throw Error(error.code(), error.what(), {.where = where});
  }
  schema.read(rest, where);
}

Json written(const RunOptions& options) {
  RunOptions copy = options;
  Schema schema;
  describe(schema, copy);
  Json all = Json::object();
  for (const char* part : {"model", "data", "training", "optimizer"}) all[part] = Json::object();
  for (const Field& field : schema.fields()) {
    Json value = field.get();
    const bool given = !value.is_null() && value != "";
    if (given && field.role() != kOnce) set_member(all, field.key(), std::move(value));
  }
  all["model"] = options.model;
  for (const auto& [name, value] : options.training.optimizer.items()) {
    all["optimizer"][name] = value;
  }
  return all;
}

ModelContext model_context(const RunOptions& options, const MeshPlace& place,
                           const Statistics& statistics) {
  return {.compute = {.selective_recomputation = options.recompute == "selective",
                      .sequence_parallel = options.sequence_parallel,
                      .overlaps_sums = options.overlaps_sums,
                      .context = options.context_kind,
                      .loss_chunk = options.loss_chunk,
                      .slices = static_cast<int>(options.training.cut_slices.value_or(1)),
                      .mix = mix_of(options)},
          .statistics = statistics,
          .place = place};
}

void add_run_options(Command command, GivenOptions& given_options) {
  command.add_option("--config", given_options.file, "JSON configuration file; options override it")
      .type_name("FILE.json");
  add_set(command, given_options.settings);
  add_flags(command, given_options.settings, [](const std::string&) { return true; });
  add_model_flags(command, given_options.settings);
  add_optimizer_flags(command, given_options.settings);
}

void add_pass_options(Command command, GivenOptions& given_options) {
  add_flags(command, given_options.settings, [](const std::string& key) {
    return key == "training.precision" || key == "parallel.recompute";
  });
}

RunOptions options_of(const GivenOptions& given_options, const Json& base) {
  RunOptions options;
  Json file = base;
  if (!given_options.file.empty()) file = read_configuration_file(given_options.file);
  RunOptions alone;  // reads the file without the options, so that errors name the file
  read_options(file, alone, given_options.file.empty() ? "the configuration" : given_options.file);
  options.given = merged(file, given_options.settings);
  read_options(options.given, options);
  refuse_what_is_ignored(given_options.settings, options, "");
  refuse_what_is_ignored(file, options,
                         given_options.file.empty() ? "the configuration" : given_options.file);
  return options;
}

RunOptions parse_run_options(const std::vector<std::string>& words, const Json& configuration) {
  GivenOptions given_options;
  RunOptions options;
  CommandLine line("", "", "");
  add_aliases(line);
  Command command = line.add("train", "");
  add_run_options(command, given_options);
  command.runs([&] {
    options = options_of(given_options, configuration);
    return 0;
  });
  std::vector<std::string> all = {"train"};
  all.insert(all.end(), words.begin(), words.end());
  line.parse(std::move(all));
  if (options.data.empty()) throw UsageError("--data is required");
  return options;
}

}  // namespace tutti::training
