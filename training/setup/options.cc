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

constexpr double kMostOfAnything = 1e9;  // for steps and samples: their products fit into 64 bits

void describe_data(Schema& schema, RunOptions& options) {
  schema
      .add("data.files", options.data,
           "text files (also .jsonl, .gz, .zst, .parquet), directories of them, or token files "
           "(.bin); for resnet, perceptron, convnet and unet a directory with MNIST's four files "
           "(unet: "
           "masks in "
           "place of labels), or images that are made: shapes:HEIGHTxWIDTH[:COUNT[:SEED]]")
      .flag("--data")
      .value_name("PATH");
  schema.add("data.validation", options.validation,
             "a token file to validate on (default: the last tenth of the data)");
  schema.add("data.fingerprint", options.fingerprint, "what the data were").flag("");
}

void describe_steps(Schema& schema, RunOptions& options) {
  schema.add("training.steps", options.steps, "optimizer steps (default: 200)")
      .between(0, kMostOfAnything);
  schema.add("training.epochs", options.epochs, "instead of --steps: times through the data");
  schema
      .add("training.micro_batches", options.micro_batches,
           "instead of --batch: micro-batches of each data-parallel rank in a step")
      .flag("--micro-batches,--accumulate")
      .between(0, kMostOfAnything);
}

void describe_rate(Schema& schema, RunOptions& options) {
  schema.add("optimizer.min_lr", options.min_rate,
             "instead of --final-fraction: the rate of the last step");
  schema.add("optimizer.rate_scaling", options.rate_scaling,
             {{"none", BatchScaling::none},
              {"linear", BatchScaling::linear},
              {"sqrt", BatchScaling::sqrt}},
             "how --lr grows with batch / --base-batch");
  schema.add("optimizer.base_batch", options.base_batch, "the batch that --lr is right for")
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
      throw Error(ErrorCode::invalid_argument, cat(in_quotes(text), " is no grid of ranks"),
                  {.where = "--spatial",
                   .remedy = cat("give ROWSxCOLUMNS, each from 1 to ", kMost, ": 2x1")});
    }
    grid = {*rows, *columns};
  };
  schema
      .add("parallel.spatial", Field::Type::text, get, set,
           "grid of ranks, each of which has a tile of every image, of resnet and unet (2x1: the "
           "upper half and the lower one)")
      .value_name("ROWSxCOLUMNS")
      .show_default();
}

void describe_parallel(Schema& schema, RunOptions& options) {
  schema
      .add(
          "parallel.dp", options.mesh.data,
          "data-parallel ranks (default: as many as --ranks, --pp, --tp, --cp and --spatial leave)")
      .between(0, 65536);
  schema
      .add("parallel.tp", options.mesh.tensor,
           "tensor-parallel ranks: each has some of attention's heads, of the feed-forward part "
           "and of the vocabulary, of gpt2, llama and its kin; of perceptron and convnet as --mix "
           "says")
      .between(1, 65536)
      .show_default();
  schema
      .add("parallel.sp", options.sequence_parallel,
           "sequence parallelism: between layers each of the --tp ranks has some of the tokens")
      .flag("--sp,--sequence-parallel");
  schema
      .add("parallel.mix", options.mix,
           "perceptron and convnet: how each layer is divided over the --tp ranks, the first layer "
           "first: a letter for each layer (d,b,m,m), a file with these letters, or auto: the mix "
           "whose costs, measured here, are least. b (batch): each rank computes some of the "
           "samples; m (model): some of the outputs; d (domain), of convolutions: a strip of each "
           "image (default: m for all)")
      .value_name("LETTERS|FILE|auto");
  schema
      .add("parallel.tp_overlap", options.overlaps_sums,
           "do not sum over the --tp ranks beside the products whose rows are summed")
      .flag("--no-tp-overlap", false);
  schema
      .add("parallel.cp", options.mesh.context,
           "context-parallel ranks: each has some of every sample's tokens, of gpt2, llama and its "
           "kin")
      .between(1, 65536)
      .show_default();
  describe_grid(schema, options.mesh.spatial);
  schema.add("parallel.cp_kind", options.context_kind,
             {{"auto", ContextKind::automatic},
              {"ring", ContextKind::ring},
              {"heads", ContextKind::heads}},
             "what the --cp ranks send each other: keys and values (ring), tokens for some of the "
             "heads (heads: two ways, all-to-all), or auto: whichever is less");
  schema.add(
      "parallel.partition_activations", options.partition_activations,
      "with --recompute full: of each block's output that is kept each of the --tp ranks has a "
      "part, which are gathered for backward");
  schema
      .add("parallel.loss_chunk", options.loss_chunk,
           "tokens whose logits are in memory at once; backward computes them anew (default: all)")
      .between(0, kMostOfAnything);
  schema
      .add("parallel.ep", options.mesh.expert,
           "expert-parallel ranks: each has some of the experts of a model with experts. They are "
           "some of the data-parallel ranks, or these and the --cp or --tp ranks")
      .between(1, 65536)
      .show_default();
  schema.add("parallel.pp", options.mesh.pipeline, "stages of a pipeline, each on a rank")
      .between(1, 65536)
      .show_default();
  schema
      .add("parallel.threads", options.threads,
           "CPU threads per rank; results are the same for any number (default: the rank's share "
           "of its host's cores)")
      .between(1, 4096);
  schema
      .add("parallel.recompute", options.recompute,
           "activations that backward computes anew: none, selective (normalizations and "
           "activation functions), or full (all but each block's output)")
      .flag("--recompute,--activation-checkpointing")
      .one_of({"none", "selective", "full"});
  schema.add("parallel.bucket_mb", options.bucket_mib, "MiB of gradients summed in one call")
      .show_default();
}

std::string group_of(const std::string& key) {
  if (key.starts_with("optimizer.") || key == "training.clip") return "Optimizer";
  if (key.starts_with("output.") || key.starts_with("checkpoint.")) return "Output";
  for (const char* name : {"parallel.", "training.precision", "training.loss_scale",
                           "training.stochastic_rounding", "training.compression"}) {
    if (key.starts_with(name)) return "Memory and parallelism";
  }
  return "";
}

// An optimizer's members that do not belong to its schedule.
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
           "go on with the run in --checkpoint, from its newest whole step or from this one; auto: "
           "or start a run where there is none, as for launchers that start ranks anew")
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
    const bool said = !value.is_null() && value != "";
    if (said && field.role() != kOnce) set_member(all, field.key(), std::move(value));
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

void add_run_options(Command command, ToldOptions& told) {
  command.add_option("--config", told.file, "a configuration in JSON, over which options go")
      .type_name("FILE.json");
  add_set(command, told.said);
  add_flags(command, told.said, [](const std::string&) { return true; });
  add_model_flags(command, told.said);
  add_optimizer_flags(command, told.said);
}

void add_pass_options(Command command, ToldOptions& told) {
  add_flags(command, told.said, [](const std::string& key) {
    return key == "training.precision" || key == "parallel.recompute";
  });
}

RunOptions options_of(const ToldOptions& told, const Json& base) {
  RunOptions options;
  Json file = base;
  if (!told.file.empty()) file = read_configuration_file(told.file);
  RunOptions alone;  // errors of the file itself are reported as such
  read_options(file, alone, told.file.empty() ? "the configuration" : told.file);
  options.given = merged(file, told.said);
  read_options(options.given, options);
  refuse_what_is_ignored(told.said, options, "");
  refuse_what_is_ignored(file, options, told.file.empty() ? "the configuration" : told.file);
  return options;
}

RunOptions parse_run_options(const std::vector<std::string>& words, const Json& configuration) {
  ToldOptions told;
  RunOptions options;
  CommandLine line("", "", "");
  add_aliases(line);
  Command command = line.add("train", "");
  add_run_options(command, told);
  command.runs([&] {
    options = options_of(told, configuration);
    return 0;
  });
  std::vector<std::string> all = {"train"};
  all.insert(all.end(), words.begin(), words.end());
  line.parse(std::move(all));
  if (options.data.empty()) throw UsageError("--data is required");
  return options;
}

}  // namespace tutti::training
