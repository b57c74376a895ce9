#include "training/run/run_settings.h"

#include <algorithm>

#include "base/error.h"
#include "training/core/number_text.h"
#include "training/models/registry.h"
#include "training/optimizers/registry.h"
#include "training/pipeline/schedules.h"
#include "training/run/configuration.h"

namespace tutti::training {
namespace {

template <typename Visit>
void visit_fields(const Visit& visit) {
  TrainOptions options;
  Schema schema;
  describe(schema, options);
  for (const Field& field : schema.fields()) visit(field);
}

std::string under_dots(const std::string& object, const Field& field) {
  return object + "." + field.key();
}

// Adds the model as one setting. Members of the model that only change how it trains are added as
// settings of their own.
void add_model(Json& settings, const Json& model) {
  const Json whole = completed_model(model);
  const Json tensors = tensors_of_model(whole);
  settings["model"] = in_words(tensors);
  if (!whole.is_object() || !whole.contains("kind")) return;
  for (const ModelKind& kind : model_kinds()) {
    if (whole.at("kind") != kind.name) continue;
    for (const Field& field : kind.schema->fields()) {
      if (field.role() == kTrainingOnly) settings[field.short_name()] = whole.at(field.key());
    }
  }
}

void add_optimizer(Json& settings, const Json& optimizer) {
  settings["optimizer"] = optimizer.at("name");
  for (const Field& field : optimizer_kind_of(optimizer).schema->fields()) {
    const Json* const value = optimizer.find(field.key());
    settings[field.short_name()] = value != nullptr ? *value : field.get();
  }
}

// Removes settings that have no effect, given the values of the other settings. Adds settings of
// `timing` that affect the losses, because weights are updated late.
void drop_what_is_unused(Json& settings, const Json& timing) {
  const std::string schedule = timing.value("schedule", std::string("1f1b"));
  bool late = pipeline::schedule_named(schedule).updates != pipeline::Updates::flushed;
  settings["late-weights"] = late ? schedule : "none";
  SyncOptions sync;
  set_way(sync, settings.at("sync"));
  late = late || sync.has_order();
  // With late weights, the number of steps between flushes, or meetings of all ranks, changes the
  // training.
  for (const char* name : {"flush-every", "validate-every", "checkpoint-every"}) {
    if (late && timing.contains(name)) settings[name] = timing.at(name);
  }
  const auto is = [&](const char* name, const char* value) {
    const Json* const found = settings.find(name);
    return found != nullptr && *found == value;
  };
  if (is("lr-schedule", "constant")) {
    settings.erase("final-fraction");
    settings.erase("samples");
  }
  if (!is("precision", "f16")) settings["loss-scale"] = "none";
  if (!is("compression", "powersgd")) settings.erase("compression-rank");
  const auto drop_unless = [&](bool used, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!used) settings.erase(name);
    }
  };
  const bool is_diloco = sync.kind == SyncKind::diloco;
  drop_unless(is_diloco || sync.kind == SyncKind::fedadam, {"outer-lr"});
  drop_unless(is_diloco, {"outer-momentum", "outer-wire"});
  drop_unless(sync.kind == SyncKind::async, {"pull-every", "damping"});
  drop_unless(sync.is_federated(), {"secure-sums"});
}

}  // namespace

Json settings_in(const Json& whole) {
  Json settings = Json::object();
  Json timing = Json::object();
  add_model(settings, whole.at("model"));
  settings["data"] = whole.at("data").at("fingerprint");
  add_optimizer(settings, whole.at("optimizer"));
  visit_fields([&](const Field& field) {
    const Json* const value = find_member(whole, field.key());
    if (value == nullptr) return;
    if (field.role().empty()) {
      settings[field.short_name()] = *value;
    } else {
      timing[field.short_name()] = *value;
    }
  });
  // Runs of earlier versions have no --sync.
  if (!settings.contains("sync")) {
    settings["sync"] = text_of(averages_every(timing.value("average-every", int64_t{0})));
  }
  drop_what_is_unused(settings, timing);
  return settings;
}

std::string text_of_setting(const Json& value) {
  if (value.is_string()) return value.get<std::string>().empty() ? "nothing" : value;
  if (!value.is_number() || value.is_whole_number()) return value.dump();
  return shortest_text(value.get<double>());
}

std::string short_name_of(const std::string& key) {
  std::string name = key;
  const auto look = [&](const Field& field, const std::string& full) {
    if (full == key) name = field.short_name();
  };
  visit_fields([&](const Field& field) { look(field, field.key()); });
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const Field& field : kind.schema->fields()) look(field, under_dots("optimizer", field));
  }
  for (const ModelKind& kind : model_kinds()) {
    for (const Field& field : kind.schema->fields()) look(field, under_dots("model", field));
  }
  return key == "optimizer.name" ? "optimizer" : key == "data.fingerprint" ? "data" : name;
}

}  // namespace tutti::training
