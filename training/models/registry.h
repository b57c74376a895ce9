// The models that a configuration can name. A new one is a file that says what its configuration
// has and how to make it, and a line in registry.cc.
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

// Sums over all ranks that share a batch, and over those that share the pixels of the same images.
// None: each rank for itself. They outlive the model.
struct Statistics {
  StatisticsReducer* of_batch = nullptr;
  StatisticsReducer* of_tiles = nullptr;
};

// What a model is made with besides its configuration: what does not change what it computes, and
// what there is only once ranks have met.
struct ModelContext {
  ComputeOptions compute = {};
  Statistics statistics = {};
  MeshPlace place = {};  // of the rank that it is made for

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
  std::shared_ptr<const Schema> schema;  // with the defaults as values
  // The whole configuration of one that may leave out what is as by default. This and make throw
  // Error(invalid_argument) for what makes no sense; a configuration's "kind" is not looked at.
  std::function<Json(const Json& configuration)> complete;
  std::function<std::unique_ptr<Model>(const Json& configuration, const ModelContext&)> make;
};

// For the files of models.
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
// No model has more: a slip of the keyboard is told at once, before there is memory for it.
inline constexpr double kMostLayers = 10000;
// The role of fields with which the same tensors train another way.
inline constexpr const char* kTrainingOnly = "training";

// In the order in which they are told to people; the first is the default.
const std::vector<ModelKind>& model_kinds();
// Throws Error(invalid_argument) for a name or a configuration without a kind, or of none.
const ModelKind& model_kind_named(const std::string& name);
const ModelKind& kind_of(const Json& configuration);

std::unique_ptr<Model> make_model(const Json& configuration, const ModelContext& context = {});
// With all that it leaves out. A configuration of no known kind stays as it is.
Json completed_model(const Json& configuration);
// Without what changes how a model trains but not which tensors it has.
Json tensors_of_model(const Json& configuration);

}  // namespace tutti::training
