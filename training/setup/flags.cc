#include "training/setup/flags.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/settings.h"
#include "base/text.h"
#include "training/core/choices.h"
#include "training/pipeline/schedules.h"
#include "training/setup/flag_help.h"
#include "training/setup/kind_settings.h"
#include "training/setup/mix_setting.h"

namespace tutti::training {
namespace {

// Known settings.

struct RunSchema {
  RunOptions options;
  Schema schema;
  RunSchema() { describe(schema, options); }
};
const Schema& run_schema() {
  static const RunSchema all;
  return all.schema;
}

// Returns the option of a field; empty if it has none.
std::string flag_of(const Field& field) {
  const std::vector<std::string> flags = split(field.traits().flags, ',');
  return flags.empty() ? "" : flags.front();
}

const char* value_name_of(const Field& field) {
  const Field::Traits& traits = field.traits();
  if (!traits.value_name.empty()) return traits.value_name.c_str();
  switch (field.type()) {
    case Field::Type::whole:
    case Field::Type::wholes:
      return "INT";
    case Field::Type::number:
    case Field::Type::numbers:
      return "FLOAT";
    default:
      return "TEXT";
  }
}

// Effects of options.

void say(Json& given, const std::string& key, const Field& field, Json value) {
  const Json* const before = find_member(given, key);
  if (field.is_list() && before != nullptr && before->is_array()) {
    Json all = *before;
    for (const Json& one : value) all.push_back(one);
    value = std::move(all);
  }
  set_member(given, key, std::move(value));
}

void add_flag(Command command, Json& given, const std::string& key, const Field& field,
              const std::string& meaning, const std::string& group) {
  const Field::Traits& traits = field.traits();
  const auto grouped = [&](const Option& option) {
    if (!group.empty()) option.group(group);
  };
  if (field.type() == Field::Type::truth) {
    const auto take = [&given, &field, key](bool on) {
      say(given, key, field, on == field.traits().flag_means);
    };
    return grouped(command.add_switch(traits.flags, take, meaning));
  }
  const auto take = [&given, &field, key](const std::vector<std::string>& words) {
    say(given, key, field, field.from_words(words));
  };
  const Option option = command.add_words(traits.flags, take, meaning, field.is_list());
  option.type_name(value_name_of(field)).suggest(field.choices());
  if (!traits.alone.empty()) option.or_alone(traits.alone);
  if (traits.by_commas) option.one_each_time();
  grouped(option);
}

// `about`: further text for the help of the option that chooses the kind.
void add_kind_flags(Command command, Json& given, const KindSettings& registry,
                    const std::string& about) {
  std::vector<std::string> names;
  std::vector<std::string> known;
  for (const KindSettings::Kind& kind : registry.kinds) {
    names.push_back(kind.name + kind.meaning);
    known.push_back(kind.name);
  }
  const std::string key = cat(registry.object, '.', registry.tag);
  const auto take = [&given, key, known](const std::vector<std::string>& words) {
    const std::string problem = choice_problem(words.at(0), known);
    if (!problem.empty()) throw Error(ErrorCode::invalid_argument, problem);
    set_member(given, key, words.at(0));
  };
  command
      .add_words(registry.flag(), take,
                 cat(joined(names, ", ", " or "), " (default: ", known[0], ")", about), false)
      .type_name("NAME")
      .group(registry.group)
      .suggest(known);
  std::vector<std::string> added;
  for (const KindSettings::Kind& kind : registry.kinds) {
    for (const Field& field : kind.schema->fields()) {
      if (field.traits().flags.empty() || std::ranges::find(added, field.key()) != added.end()) {
        continue;
      }
      added.push_back(field.key());
      add_flag(command, given, cat(registry.object, '.', field.key()), field,
               meaning_of(registry, field.key()), registry.group);
    }
  }
}

// Returns the setting with this dotted name, from any schema.
const Field* field_named(const std::string& key) {
  if (const Field* const field = run_schema().find(key)) return field;
  for (const KindSettings* registry : {&model_settings(), &optimizer_settings()}) {
    const std::string prefix = cat(registry->object, '.');
    if (key.starts_with(prefix)) return registry->find(key.substr(prefix.size()));
  }
  return nullptr;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const Field& field : run_schema().fields()) names.push_back(field.key());
  for (const KindSettings* registry : {&model_settings(), &optimizer_settings()}) {
    names.push_back(cat(registry->object, '.', registry->tag));
    for (const KindSettings::Kind& kind : registry->kinds) {
      for (const Field& field : kind.schema->fields()) {
        names.push_back(cat(registry->object, '.', field.key()));
      }
    }
  }
  return names;
}

void set_one(Json& given, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) {
    throw Error(ErrorCode::invalid_argument, cat("expected name=value, not ", in_quotes(word)),
                {.remedy = "write --set optimizer.lr=0.001"});
  }
  const std::string key = word.substr(0, equals);
  const std::string value = word.substr(equals + 1);
  if (key == "model.kind" || key == "optimizer.name") return set_member(given, key, value);
  check_is_setting(key);
  const Field* const field = field_named(key);
  if (value == "null") return set_member(given, key, Json());
  if (field->is_list() && value.starts_with('[')) {
    return set_member(given, key, field->checked(Json::parse(value)));
  }
  try {
    set_member(given, key,
               field->from_words(field->is_list() ? split(value, ',') : std::vector{value}));
  } catch (const Error& error) {
    throw Error(error.code(), cat(key, ": ", error.what()));
  }
}

}  // namespace

void check_is_setting(const std::string& key) {
  const std::vector<std::string> names = all_names();
  if (std::ranges::find(names, key) != names.end()) return;
  const std::string close = nearest(key, names);
  throw Error(ErrorCode::invalid_argument,
              cat("unknown setting ", printable(key),
                  close.empty() ? "" : cat(" (did you mean ", close, "?)")));
}

void add_flags(Command command, Json& given,
               const std::function<bool(const std::string& key)>& wanted) {
  for (const Field& field : run_schema().fields()) {
    if (field.traits().flags.empty() || !wanted(field.key())) continue;
    add_flag(command, given, field.key(), field, meaning_of(field), field.traits().group);
  }
}

void add_model_flags(Command command, Json& given) {
  add_kind_flags(command, given, model_settings(),
                 cat("; groups of models named below: ", model_groups_in_words()));
}
void add_optimizer_flags(Command command, Json& given) {
  add_kind_flags(command, given, optimizer_settings(), "");
}

void add_set(Command command, Json& given) {
  const auto take = [&given](const std::vector<std::string>& words) {
    for (const std::string& word : words) set_one(given, word);
  };
  command.add_words("--set", take, "set a configuration value by name: optimizer.lr=0.001", true)
      .type_name("NAME=VALUE");
}

void refuse_members_of_other_kinds(const Json& object, const std::string& where) {
  const bool is_model = object.contains("kind");
  const KindSettings& registry = is_model ? model_settings() : optimizer_settings();
  const Json* const name = object.find(registry.tag);
  for (const auto& [key, value] : object.items()) {
    const std::vector<std::string> owners = registry.names_with(key);
    if (name == nullptr || owners.empty()) continue;
    if (std::ranges::any_of(owners, [&](const auto& owner) { return *name == owner; })) continue;
    const std::string flag = flag_of(*registry.find(key));
    const std::string problem =
        cat(flag.empty() ? key : flag, " has no effect without ", registry.flag(), ' ',
            joined(owners, ", ", " or "), "; the ", registry.object, " is ", name->words());
    if (where.empty()) throw UsageError(problem);
    throw Error(ErrorCode::invalid_argument, problem, {.where = where});
  }
}

void refuse_what_is_ignored(const Json& given, const RunOptions& options,
                            const std::string& where) {
  const TrainOptions& training = options.training;
  const bool has_directory = !training.checkpoint.empty();
  const bool is_late = [&] {
    const std::string& schedule = training.replica.pipeline.schedule;
    // Loss scaling is settled later; f16 has it by default.
    const bool is_scaled = training.replica.storage.dtype == DType::f16;
    const SyncOptions& sync = training.replica.sync;
    if (sync.has_servers() || (sync.has_own_values() && !is_scaled)) return true;
    return find_member(given, "parallel.flush_every") != nullptr &&
           pipeline::schedule_named(schedule).updates != pipeline::Updates::flushed;
  }();
  const SyncOptions& sync = training.replica.sync;
  const bool is_async = sync.kind == SyncKind::async;
  const bool has_order = sync.has_order();
  const bool is_diloco = sync.kind == SyncKind::diloco;
  const OffloadOptions& offload = training.replica.storage.offload;
  const bool offloads = !offload.kinds.empty();
  const struct {
    const char* key;
    bool is_used;
    const char* needs;
  } details[] = {
      {"optimizer.base_batch",
       options.rate_scaling != BatchScaling::none || options.decay_scaling != BatchScaling::none,
       "--rate-scaling or --decay-scaling, linear or sqrt"},
      {"optimizer.final_fraction", training.schedule.decay != LearningRateSchedule::Decay::constant,
       "--lr-schedule cosine or linear"},
      {"optimizer.nesterov", training.optimizer.value("momentum", 1.0) != 0, "--momentum above 0"},
      {"model.rope_factor", options.model.value("rope_scaling", std::string("none")) != "none",
       "--rope-scaling linear, dynamic or llama3"},
      {"parallel.flush_every", is_late, "--schedule pipedream or pipedream-2bw, or --sync"},
      {"parallel.sp", options.mesh.tensor > 1, "--tp"},
      {"parallel.sp", !takes_mix(options), "--model gpt2 or the llama family"},
      {"parallel.mix", takes_mix(options), "--model perceptron or convnet"},
      {"parallel.mix", options.mesh.tensor > 1, "--tp"},
      {"parallel.tp_overlap", options.mesh.tensor > 1, "--tp"},
      {"parallel.cp_kind", options.mesh.context > 1, "--cp"},
      {"parallel.partition_activations", options.mesh.tensor > 1 && options.recompute == "full",
       "--tp and --recompute full"},
      {"training.cut_slices", settings().get_bool("TUTTI_DETERMINISTIC"), "TUTTI_DETERMINISTIC=1"},
      {"training.loss_scale", training.replica.storage.dtype == DType::f16, "--precision f16"},
      {"training.compression_rank", training.compression == Compression::powersgd,
       "--compression powersgd"},
      {"training.outer_lr", is_diloco || sync.kind == SyncKind::fedadam,
       "--sync diloco:H or fedadam:K"},
      {"training.outer_momentum", is_diloco, "--sync diloco:H"},
      {"training.outer_wire", is_diloco, "--sync diloco:H"},
      {"training.secure_sums", sync.is_federated(), "--sync fedavg:K, fedprox:K,MU or fedadam:K"},
      {"training.pull_every", is_async, "--sync async"},
      {"training.damping", is_async, "--sync async"},
      {"parallel.offload", !offload.activations() || options.recompute == "full",
       "--recompute full if it includes activations"},
      {"parallel.offload_dir", offloads, "--offload"},
      {"parallel.offload_window", offloads, "--offload optimizer"},
      {"output.record", has_order, "--sync ps, ssp:BOUND, async or adpsgd"},
      {"output.replay", has_order, "--sync ps, ssp:BOUND, async or adpsgd"},
      {"training.compression_warmup", training.compression != Compression::none, "--compression"},
      {"training.compression_only", training.compression != Compression::none, "--compression"},
      {"checkpoint.every", has_directory, "--checkpoint DIR"},
      {"checkpoint.keep", has_directory, "--checkpoint DIR"},
      {"checkpoint.async", has_directory, "--checkpoint DIR"},
      {"checkpoint.keep_best", has_directory, "--checkpoint DIR"},
  };
  for (const auto& detail : details) {
    const Json* const value = find_member(given, detail.key);
    if (detail.is_used || value == nullptr) continue;
    const Field& field = *field_named(detail.key);
    const std::string problem = cat(flag_of(field), " has no effect without ", detail.needs);
    if (where.empty()) throw UsageError(problem);
    // A complete configuration has every setting, most of them with default values.
    if (*value == field.get()) continue;
    throw Error(ErrorCode::invalid_argument, problem,
                {.where = cat(where, ": ", detail.key), .remedy = "remove this setting"});
  }
  if (where.empty() && find_member(given, "training.samples") != nullptr) {
    throw UsageError("training.samples cannot be set, because it follows from --steps or --epochs");
  }
}

}  // namespace tutti::training
