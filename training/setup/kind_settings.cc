#include "training/setup/kind_settings.h"

#include "training/models/registry.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

const KindSettings& model_settings() {
  static const KindSettings all = [] {
    KindSettings models{"model", "kind", "Model", {}};
    for (const ModelKind& kind : model_kinds()) {
      models.kinds.push_back({kind.name, cat(" (", kind.meaning, ")"), kind.schema});
    }
    return models;
  }();
  return all;
}

const KindSettings& optimizer_settings() {
  static const KindSettings all = [] {
    KindSettings optimizers{"optimizer", "name", "Optimizer", {}};
    for (const OptimizerKind& kind : optimizer_kinds()) {
      KindSettings::Kind& added = optimizers.kinds.emplace_back(kind.name, "", kind.schema);
      for (const ModelKind& model : model_kinds()) {
        added.suits.emplace_back(model.name, kind.suits(model.traits));
      }
    }
    return optimizers;
  }();
  return all;
}

}  // namespace tutti::training
