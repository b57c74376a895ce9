// Creates models by the name of their kind and a configuration. To add a kind, write a file with
// its configuration and construction, and add a line to registry.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/core/described.h"
#include "training/core/model.h"
#include "training/core/model_traits.h"
#include "training/core/schema.h"
#include "training/models/compute_options.h"
#include "training/modules/batch_norm.h"

namespace tutti::training {

// Reducers over all ranks that share a batch, and over the ranks that share the pixels of an image.
// They must outlive the model. Null: each rank computes statistics separately.
struct Statistics {
  StatisticsReducer* of_batch = nullptr;
  StatisticsReducer* of_tiles = nullptr;
};

// Inputs to a model's construction other than its configuration: options that do not change its
// results, and objects that exist only once ranks are connected.
struct ModelContext {
  ComputeOptions compute = {};
  Statistics statistics = {};
  MeshPlace place = {};  // place of the rank for which the model is built

  // Returns the reducer for batch normalization. `synchronized`: over all ranks (SyncBN).
  StatisticsReducer* reducer(bool synchronized) const {
    if (synchronized) return statistics.of_batch;
    return place.size(Axis::spatial) > 1 ? statistics.of_tiles : nullptr;
  }
};

struct ModelKind {
  std::string name;     // such as "gpt2"
  std::string meaning;  // description in the help
  ModelTraits traits;
  std::shared_ptr<const Schema> schema;  // fields of the configuration, with the default values
  // Fills in the defaults of a configuration. `complete` and `make` throw Error(invalid_argument)
  // for invalid values; both ignore the member "kind".
  std::function<Json(const Json& configuration)> complete;
  std::function<std::unique_ptr<Model>(const Json& configuration, const ModelContext&)> make;
};

// Function that creates a model from its configuration; the model's file defines it.
template <typename Config>
using MakeModel = std::unique_ptr<Model> (*)(const Config& config, const ModelContext& context);
template <typename Config>
ModelKind model_kind(const std::string& meaning, const ModelTraits& traits,
                     const Described<Config>& described, MakeModel<Config> make) {
  return {
      .name = described.name,
      .meaning = meaning,
      .traits = traits,
      .schema = described.schema(),
      .complete =
          [=](const Json& configuration) { return described.write(described.read(configuration)); },
      .make =
          [=](const Json& configuration, const ModelContext& context) {
            return make(described.read(configuration), context);
          }};
}
// Maximum number of layers, so that a typing error is reported before memory is allocated.
inline constexpr double kMostLayers = 10000;
// Role of fields that change the training but not the model's tensors.
inline constexpr const char* kTrainingOnly = "training";

// Returns all kinds, in the order of help texts; the first is the default.
const std::vector<ModelKind>& model_kinds();
// Return a kind by its name, or by the configuration that names it. Throw Error(invalid_argument)
// for an unknown name, or a configuration without a known kind.
const ModelKind& model_kind_named(const std::string& name);
const ModelKind& kind_of(const Json& configuration);

std::unique_ptr<Model> make_model(const Json& configuration, const ModelContext& context = {});
// Returns the configuration with all defaults filled in. Returns a configuration of unknown kind
// unchanged.
Json completed_model(const Json& configuration);
// Returns the configuration without the fields that change the training but not the tensors.
Json tensors_of_model(const Json& configuration);

}  // namespace tutti::training
