// Settings of models and optimizers by kind.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "training/core/schema.h"

namespace tutti::training {

// All kinds of models, or of optimizers, with the settings of each kind.
struct KindSettings {
  struct Kind {
    std::string name;
    std::string meaning;
    std::shared_ptr<const Schema> schema;
    // For an optimizer: pairs of a model's name and the defaults that suit that model, which
    // override the defaults of `schema`.
    std::vector<std::pair<std::string, Json>> suits = {};
  };
  const char* object;  // such as "model"
  const char* tag;     // such as "kind"
  const char* group;
  std::vector<Kind> kinds;

  std::string flag() const { return cat("--", object); }
  std::vector<std::string> names_with(const std::string& key) const {
    std::vector<std::string> names;
    for (const Kind& kind : kinds) {
      if (kind.schema->find(key) != nullptr) names.push_back(kind.name);
    }
    return names;
  }
  const Field* find(const std::string& key) const {
    for (const Kind& kind : kinds) {
      if (const Field* const field = kind.schema->find(key)) return field;
    }
    return nullptr;
  }
};

const KindSettings& model_settings();
const KindSettings& optimizer_settings();

}  // namespace tutti::training
