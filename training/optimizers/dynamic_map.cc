#include "training/optimizers/dynamic_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {
namespace {

constexpr int kDecades = 7;

// Returns element `index` of torch.linspace(0.1, 1, parts + 1), as PyTorch computes it with fused
// multiply-add.
float boundary(int index, int parts) {
  constexpr float kStart = 0.1F;
  const float step = (1 - kStart) / static_cast<float>(parts);
  if (index < (parts + 1) / 2) return std::fma(step, static_cast<float>(index), kStart);
  return std::fma(-step, static_cast<float>(parts - index), 1.0F);
}

// Returns the values of a map. The decade below 1 has 64 values for each sign, the one below it
// half as many, and so on; the unsigned map has twice as many. The parts of a decade are equal, and
// each value is the middle of a part.
std::array<float, 256> values_of(bool is_signed) {
  std::array<float, 256> values = {0.0F, 1.0F};
  auto next = values.begin() + 2;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int parts = (is_signed ? 1 : 2) << decade;
    const auto scale = static_cast<float>(std::pow(10.0, decade + 1 - kDecades));
    for (int part = 0; part < parts; ++part) {
      const float middle = (boundary(part, parts) + boundary(part + 1, parts)) / 2;
      *next++ = scale * middle;
      if (is_signed) *next++ = -scale * middle;
    }
  }
  std::ranges::sort(values);
  return values;
}

// Returns the table's entry for a cell, a set of floats of one sign that differ only in their last
// kCellBits bits. The entry contains the code of the cell's first float and the last bits of the
// last float with this code. Later floats of the cell have an adjacent code.
uint32_t cell_of(const std::array<float, 256>& values, uint32_t first) {
  using optimizer_loops::kCellMask;
  const auto code = [&](uint32_t low) {
    return nearest_code(values, std::bit_cast<float>(first + low));
  };
  const uint8_t of_first = code(0);
  // Bisects between the last float known to have this code, and the first known to have another.
  uint32_t below = 0;
  uint32_t above = kCellMask + 1;
  if (code(kCellMask) == of_first) below = kCellMask;
  while (above - below > 1) {
    const uint32_t middle = (below + above) / 2;
    (code(middle) == of_first ? below : above) = middle;
  }
  return (uint32_t{of_first} << optimizer_loops::kCellBits) | below;
}

DynamicMap make_map(bool is_signed) {
  using namespace optimizer_loops;
  DynamicMap map{.values = values_of(is_signed)};
  for (const uint32_t sign : {0U, 1U << 31}) {
    for (uint32_t cell = 0; cell < kCells; ++cell) {
      map.cells.push_back(cell_of(map.values, sign | (kLeastCell + (cell << kCellBits))));
    }
  }
  return map;
}

}  // namespace

uint8_t nearest_code(const std::array<float, 256>& values, float x) {
  const auto upper = std::max(std::ranges::upper_bound(values, x), values.begin() + 1);
  if (upper == values.end()) return 255;
  auto code = static_cast<int>(upper - values.begin()) - 1;
  const float middle = (values[static_cast<size_t>(code)] + *upper) * 0.5F;
  if (x > middle || (x == middle && code % 2 == 1)) ++code;
  if (std::signbit(x) && code > 0 && values[static_cast<size_t>(code)] == 0) --code;
  return static_cast<uint8_t>(code);
}

const DynamicMap& signed_dynamic_map() {
  static const DynamicMap map = make_map(true);
  return map;
}

const DynamicMap& unsigned_dynamic_map() {
  static const DynamicMap map = make_map(false);
  return map;
}

}  // namespace tutti::training
