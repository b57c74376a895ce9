#include "training/core/axes.h"

namespace tutti::training {

std::string_view name(Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return "tensor";
    case Axis::context:
      return "context";
    case Axis::spatial:
      return "spatial";
    case Axis::expert:
      return "expert";
    case Axis::data:
      return "data";
    case Axis::pipeline:
      return "pipeline";
  }
  return "?";
}

std::string name(AxisSet axes) {
  std::string text;
  for (const Axis axis : kAllAxes) {
    if (!axes.has(axis)) continue;
    if (!text.empty()) text += " x ";
    text += name(axis);
  }
  return text.empty() ? "no axis" : text;
}

}  // namespace tutti::training
