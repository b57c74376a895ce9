#include "training/core/model.h"

#include "base/text.h"

namespace tutti::training {

double Model::flops_per_sample() const {
  double weights = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    if (spec.shape.size() >= 2) weights += static_cast<double>(spec.count());
  }
  return 6 * weights;
}

Json Model::configuration() const {
  int64_t count = 0;
  for (const ParameterSpec& spec : parameters_.specs()) count += spec.count();
  Json units = Json::array();
  for (const auto& unit : units_) units.push_back(unit->name());
  return {{"kind", "own"}, {"parameters", count}, {"units", std::move(units)}};
}

std::string in_words(const Json& configuration) {
  if (!configuration.is_object())
    return configuration.is_string() ? std::string(configuration) : "";
  std::string text;
  for (const auto& [name, value] : configuration.items()) {
    std::string shown = value.is_string() ? std::string(value) : value.dump();
    if (value.is_array()) shown = shown.substr(1, shown.size() - 2);
    text += text.empty() && name == "kind" ? shown : cat(text.empty() ? "" : " ", name, '=', shown);
  }
  return text;
}

}  // namespace tutti::training
