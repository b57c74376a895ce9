// The models that a configuration can name. To add one, write a file with its configuration and
// construction, and add a line to registry.cc.
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

// Sums over all ranks that share a batch, and over those that share the pixels of an image. Null:
// each rank by itself. They must outlive the model.
struct Statistics {
  StatisticsReducer* of_batch = nullptr;
  StatisticsReducer* of_tiles = nullptr;
};

// Inputs to a model's construction besides its configuration: options that do not change its
// results, and objects that exist only once ranks are connected.
struct ModelContext {
  ComputeOptions compute = {};
  Statistics statistics = {};
  MeshPlace place = {};  // of the rank for which it is built

  // For batch normalization; `synchronized`: over all ranks (SyncBN).
  StatisticsReducer* reducer(bool synchronized) const {
    if (synchronized) return statistics.of_batch;
    return place.size(Axis::spatial) > 1 ? statistics.of_tiles : nullptr;
  }
};

struct ModelKind {
  std::string name;     // "gpt2"
  std::string meaning;  // for the help
  ModelTraits traits;
  std::shared_ptr<const Schema> schema;  // with the default values
  // Fills in the defaults of a configuration. It and `make` throw Error(invalid_argument) for
  // invalid values; both ignore the member "kind".
  std::function<Json(const Json& configuration)> complete;
  std::function<std::unique_ptr<Model>(const Json& configuration, const ModelContext&)> make;
};

// Defines a model's kind, in the model's file.
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
// Upper limit, so that a typing error is reported before memory is allocated.
inline constexpr double kMostLayers = 10000;
// Role of fields that change the training, but not the tensors.
inline constexpr const char* kTrainingOnly = "training";

// In the order of help texts; the first is the default.
const std::vector<ModelKind>& model_kinds();
// Throws Error(invalid_argument) for an unknown name, or a configuration without a known kind.
const ModelKind& model_kind_named(const std::string& name);
const ModelKind& kind_of(const Json& configuration);

std::unique_ptr<Model> make_model(const Json& configuration, const ModelContext& context = {});
// Fills in all defaults. Returns a configuration of unknown kind unchanged.
Json completed_model(const Json& configuration);
// Removes fields that change the training, but not the tensors.
Json tensors_of_model(const Json& configuration);

}  // namespace tutti::training
