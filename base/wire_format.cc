#include "base/wire_format.h"

#include <algorithm>

namespace tutti {

namespace {

constexpr std::array<std::string_view, kAllWireFormats.size()> kWireNames = {
    "plain", "bf16", "f16", "f8e4m3", "f8e5m2", "mx8", "mx4", "int8", "sign"};

}  // namespace

std::string_view name(WireFormat format) { return kWireNames[static_cast<size_t>(format)]; }

std::optional<WireFormat> wire_format_named(std::string_view text) {
  const auto found = std::ranges::find(kWireNames, text);
  if (found != kWireNames.end()) return kAllWireFormats[found - kWireNames.begin()];
  if (text == "fp8") return WireFormat::f8e4m3;
  const std::optional<DType> type = parse_dtype(text);
  if (!type || *type == DType::f32) return std::nullopt;
  const auto same =
      std::ranges::find(kAllWireFormats, *type, [](WireFormat one) { return element_of(one); });
  if (same == kAllWireFormats.end()) return std::nullopt;
  return *same;
}

}  // namespace tutti
