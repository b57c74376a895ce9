// Layout of an activation tensor on the ranks of a mesh (placement.h describes the layout of
// parameters). The whole tensor is rows x columns; along each axis of the mesh every rank has one
// of
//
//   replicated   the whole tensor   [a b]  [a b]
//   rows         some of its rows   [a  ]  [  b]
//   columns      some of its columns
//   partial      a term: the tensor is the sum over ranks
//   channels     images, one in each row: some of their channels
//   pixels       images, one in each row: one tile of each image
//
// A pair of layouts determines the messages that convert one into the other
// (parallel/convert_layout.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "training/core/axes.h"
#include "training/core/placement.h"

namespace tutti::training {

enum class Spread : uint8_t { replicated, rows, columns, partial, channels, pixels };

class ActivationLayout {
 public:
  // Creates the layout that is replicated along all axes.
  constexpr ActivationLayout() = default;
  constexpr ActivationLayout(Axis axis, Spread spread) { spread_[index(axis)] = spread; }

  constexpr Spread along(Axis axis) const { return spread_[index(axis)]; }
  constexpr ActivationLayout with(Axis axis, Spread spread) const {
    ActivationLayout changed = *this;
    changed.spread_[index(axis)] = spread;
    return changed;
  }

  // Returns how many of the whole tensor's `rows` (or columns) the rank at `place` has. If two axes
  // cut the same dimension, it is first cut along the axis that comes later in enum Axis, and each
  // part is cut again along the other axis. Cuts into channels and pixels are ignored, because for
  // tensors with such cuts `columns` is already the number on this rank.
  int64_t rows_at(const MeshPlace& place, int64_t rows) const {
    return part_of(place, rows, Spread::rows);
  }
  int64_t columns_at(const MeshPlace& place, int64_t columns) const {
    return part_of(place, columns, Spread::columns);
  }

  constexpr bool operator==(const ActivationLayout&) const = default;

 private:
  static constexpr size_t index(Axis axis) { return static_cast<size_t>(axis); }

  int64_t part_of(const MeshPlace& place, int64_t count, Spread cut) const {
    for (int axis = kAxes; axis-- > 0;) {
      const auto at = static_cast<Axis>(axis);
      if (along(at) == cut) count = even_share(count, place.place(at), place.size(at)).count;
    }
    return count;
  }

  std::array<Spread, kAxes> spread_ = {};
};

inline constexpr ActivationLayout kReplicated;
inline constexpr ActivationLayout kTensorRows(Axis::tensor, Spread::rows);
inline constexpr ActivationLayout kTensorColumns(Axis::tensor, Spread::columns);
inline constexpr ActivationLayout kTensorPartial(Axis::tensor, Spread::partial);
inline constexpr ActivationLayout kTensorChannels(Axis::tensor, Spread::channels);
inline constexpr ActivationLayout kTensorPixels(Axis::tensor, Spread::pixels);

}  // namespace tutti::training
