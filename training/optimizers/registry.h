// Creates optimizers by name and configuration. To add one, write a file with its configuration and
// its update, and add a line to registry.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/core/described.h"
#include "training/core/model_traits.h"
#include "training/core/schema.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

struct OptimizerKind {
  std::string name;  // such as "adamw"
  // Returns the defaults for a model: "lr" and members of the configuration.
  std::function<Json(const ModelTraits& model)> suits;
  std::shared_ptr<const Schema> schema;  // fields of the configuration, with the default values
  // Fills in the defaults of a configuration. `complete` and `make` throw Error(invalid_argument)
  // for invalid values; both ignore the member "name".
  std::function<Json(const Json& configuration)> complete;
  std::function<std::unique_ptr<Optimizer>(const Json& configuration)> make;
};

// Builds an OptimizerKind; called in the optimizer's source file. `describe` adds the fields of
// Options to a schema.
template <typename Made, typename Options>
OptimizerKind optimizer_kind(const std::string& name, Json (*suits)(const ModelTraits& model),
                             void (*describe)(Schema& schema, Options& options)) {
  const Described<Options> described{"optimizer", "name", name, describe};
  return {
      .name = name,
      .suits = suits,
      .schema = described.schema(),
      .complete =
          [=](const Json& configuration) { return described.write(described.read(configuration)); },
      .make =
          [=](const Json& configuration) {
            return std::make_unique<Made>(described.read(configuration));
          }};
}

// Returns all kinds, in the order of help texts; the first is the default.
const std::vector<OptimizerKind>& optimizer_kinds();
// Returns the kind that a configuration names. Throws Error(invalid_argument) for a configuration
// without a name, or with an unknown one.
const OptimizerKind& optimizer_kind_of(const Json& configuration);

std::unique_ptr<Optimizer> make_optimizer(const Json& configuration);

}  // namespace tutti::training
