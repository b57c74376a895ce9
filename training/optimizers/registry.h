// The optimizers that a configuration can name. A new one is a file that says what its
// configuration has and how it updates, and a line in registry.cc.
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
  std::string name;  // "adamw"
  // What to take for a model where a run says nothing else: its "lr", and members of the
  // configuration.
  std::function<Json(const ModelTraits& model)> suits;
  std::shared_ptr<const Schema> schema;  // with the defaults as values
  // The whole configuration of one that may leave out what is as by default. This and make throw
  // Error(invalid_argument) for what makes no sense; a configuration's "name" is not looked at.
  std::function<Json(const Json& configuration)> complete;
  std::function<std::unique_ptr<Optimizer>(const Json& configuration)> make;
};

// For the files of optimizers.
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

// In the order in which they are told to people; the first is the default.
const std::vector<OptimizerKind>& optimizer_kinds();
// Throws Error(invalid_argument) for a configuration without a name, or with one of none.
const OptimizerKind& optimizer_kind_of(const Json& configuration);

std::unique_ptr<Optimizer> make_optimizer(const Json& configuration);

}  // namespace tutti::training
