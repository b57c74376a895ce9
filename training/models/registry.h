// The models that a configuration can name. A new one is a file that says what its configuration
// has and how to make it, and a line in registry.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/schema.h"
#include "training/model.h"
#include "training/modules/batch_norm.h"

namespace tutti::training {

// What a sample is.
enum class Inputs {
  last_tokens,  // `context` tokens, and the one that follows
  windows,      // `context` tokens, and the one that follows each of them
  images,       // channels x height x width, and its class
};

// What suits a model, where a run says nothing else. Optimizers (optimizers/registry.h) make their
// own defaults of it.
struct ModelTraits {
  Inputs inputs = Inputs::windows;
  int64_t batch = 32;  // samples
  int64_t micro_batch = 32;
  double adam_rate = 1e-3;     // learning rates of Adam's kind,
  double sgd_rate = 0.1;       // and of plain descent
  double weight_decay = 0.01;  // decoupled
  double clip = 0;             // 0: none
};

// What a model is made with besides its configuration: what does not change what it computes, and
// what there is only once ranks have met.
struct ModelContext {
  bool selective_recomputation = false;
  StatisticsReducer* statistics = nullptr;  // none: each rank for itself. Outlives the model.
};

struct ModelKind {
  std::string name;     // "gpt2"
  std::string meaning;  // for the help
  ModelTraits traits;
  std::shared_ptr<const Schema> schema;  // with the defaults as values
  // The whole configuration of one that may leave out what is as by default. This and make throw
  // Error(invalid_argument) for what makes no sense; a configuration's "kind" is not looked at.
  std::function<Json(const Json& configuration)> complete;
  std::function<std::unique_ptr<Model>(const Json& configuration, const ModelContext&)> make;
};

// --- For the files of models ---

// Says which members of a configuration there are, and which value each is.
template <typename Config>
using Describe = void (*)(Schema& schema, Config& config);
template <typename Config>
using Make = std::unique_ptr<Model> (*)(const Config& config, const ModelContext& context);
// Reads a configuration over the defaults.
template <typename Config>
void read_configuration(const Json& configuration, Config& config, Describe<Config> describe);
template <typename Config>
Json configuration_of(const std::string& kind, Config config, Describe<Config> describe);
template <typename Config>
ModelKind model_kind(const std::string& name, const std::string& meaning, const ModelTraits& traits,
                     Describe<Config> describe, Make<Config> make, const Config& defaults = {});

// --- For those who use them ---

// In the order in which they are told to people; the first is the default.
const std::vector<ModelKind>& model_kinds();
// Throws Error(invalid_argument) for a name or a configuration without a kind, or of none.
const ModelKind& model_kind_named(const std::string& name);
const ModelKind& kind_of(const Json& configuration);

std::unique_ptr<Model> make_model(const Json& configuration, const ModelContext& context = {});
// With all that it leaves out. Also takes what earlier checkpoints have instead, a line of text
// (earlier_models.h); what is of no kind stays as it is.
Json completed_model(const Json& configuration);
// Without what changes how a model trains but not which tensors it has.
Json tensors_of_model(const Json& configuration);

// ---

// Sizes have limits, so that their products are 64-bit numbers.
void finish_schema(Schema& schema);

template <typename Config>
void read_configuration(const Json& configuration, Config& config, Describe<Config> describe) {
  Schema schema;
  describe(schema, config);
  finish_schema(schema);
  Json own = configuration;
  own.erase("kind");
  schema.read(own, "", "model");
}

template <typename Config>
Json configuration_of(const std::string& kind, Config config, Describe<Config> describe) {
  Schema schema;
  describe(schema, config);
  Json all = {{"kind", kind}};
  for (const Field& field : schema.fields()) all[field.key()] = field.get();
  return all;
}

template <typename Config>
ModelKind model_kind(const std::string& name, const std::string& meaning, const ModelTraits& traits,
                     Describe<Config> describe, Make<Config> make, const Config& defaults) {
  struct Described {
    Config config;
    Schema schema;
  };
  const auto described = std::make_shared<Described>(Described{defaults, {}});
  describe(described->schema, described->config);
  finish_schema(described->schema);
  const auto read = [defaults, describe](const Json& configuration) {
    Config config = defaults;
    read_configuration(configuration, config, describe);
    return config;
  };
  return {.name = name,
          .meaning = meaning,
          .traits = traits,
          .schema = std::shared_ptr<const Schema>(described, &described->schema),
          .complete =
              [=](const Json& configuration) {
                return configuration_of(name, read(configuration), describe);
              },
          .make = [=](const Json& configuration,
                      const ModelContext& context) { return make(read(configuration), context); }};
}

}  // namespace tutti::training
