#include "training/model.h"

#include "base/text.h"

namespace tutti::training {

double Model::flops_per_sample() const {
  double weights = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    if (spec.shape.size() >= 2) weights += static_cast<double>(spec.count());
  }
  return 6 * weights;
}

std::string Model::description() const {
  int64_t count = 0;
  for (const ParameterSpec& spec : parameters_.specs()) count += spec.count();
  std::string text = cat(count, " parameters in");
  for (const auto& unit : units_) text += cat(' ', unit->name());
  return text;
}

}  // namespace tutti::training
