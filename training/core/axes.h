// The axes of a mesh of ranks, one for each kind of parallelism, and the coordinates of a rank on
// them.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tutti::training {

// Axes, from the fastest-varying with consecutive ranks to the slowest. The axes with the most
// traffic come first, so that their ranks share a host (Narayanan et al., 2021: tensor parallelism
// inside the node, pipelines across nodes).
enum class Axis { tensor, context, spatial, expert, data, pipeline };
inline constexpr int kAxes = 6;
inline constexpr std::array<Axis, kAxes> kAllAxes = {Axis::tensor, Axis::context, Axis::spatial,
                                                     Axis::expert, Axis::data,    Axis::pipeline};
std::string_view name(Axis axis);

class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= bit(axis);
  }
  static constexpr AxisSet all() { return AxisSet((1U << kAxes) - 1); }

  constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet operator|(AxisSet other) const { return AxisSet(bits_ | other.bits_); }
  constexpr AxisSet operator&(AxisSet other) const { return AxisSet(bits_ & other.bits_); }
  constexpr AxisSet without(AxisSet other) const { return AxisSet(bits_ & ~other.bits_); }
  constexpr auto operator<=>(const AxisSet&) const = default;

 private:
  explicit constexpr AxisSet(uint32_t bits) : bits_(bits) {}
  static constexpr uint32_t bit(Axis axis) { return 1U << static_cast<uint32_t>(axis); }

  uint32_t bits_ = 0;
};

// Axes over which a batch is sharded. kSampleAxes divide its samples. kPartAxes divide each sample:
// the context axis divides its tokens, and the spatial axis its pixels. Along the axes of both
// sets, parameters are replicated and their gradients are partial sums, unless one rank owns the
// parameter (placement.h). The expert axis is a part of data parallelism: it distinguishes the data
// ranks that own different experts (MeshPlace::experts).
inline constexpr AxisSet kSampleAxes = {Axis::expert, Axis::data};
inline constexpr AxisSet kPartAxes = {Axis::context, Axis::spatial};
inline constexpr AxisSet kBatchAxes = kSampleAxes | kPartAxes;

// Returns the axes as text: "tensor x data", or "no axis" for an empty set.
std::string name(AxisSet axes);

// Number of rows and columns of a grid of ranks.
struct GridShape {
  int rows = 1;
  int columns = 1;

  int ranks() const { return rows * columns; }
  bool operator==(const GridShape&) const = default;
};

// Number of ranks of a mesh along each axis, and this rank's index along each axis. The default is
// a mesh of one rank.
struct MeshPlace {
  std::array<int, kAxes> sizes = {1, 1, 1, 1, 1, 1};
  std::array<int, kAxes> places = {};
  // Number of columns of the grid of ranks along the spatial axis; the grid is filled row by row.
  int grid_columns = 1;
  // The axes over which a mixture's experts are sharded (models/mixture.h). Empty: the experts are
  // replicated.
  AxisSet experts = {};

  int size(Axis axis) const { return sizes[static_cast<size_t>(axis)]; }
  int place(Axis axis) const { return places[static_cast<size_t>(axis)]; }
  // Returns the MeshPlace of rank `rank` of the same mesh.
  MeshPlace of_rank(int rank) const {
    MeshPlace other = *this;
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      other.places[axis] = rank % sizes[axis];
      rank /= sizes[axis];
    }
    return other;
  }
  // Return the number of ranks along these axes together, and the index of this rank among them, in
  // the order of global ranks.
  int ranks_along(AxisSet axes) const {
    int ranks = 1;
    for (const Axis axis : kAllAxes) {
      if (axes.has(axis)) ranks *= size(axis);
    }
    return ranks;
  }
  int number_along(AxisSet axes) const {
    int number = 0;
    for (auto axis = kAllAxes.rbegin(); axis != kAllAxes.rend(); ++axis) {
      if (axes.has(*axis)) number = number * size(*axis) + place(*axis);
    }
    return number;
  }
  // Returns the axes along which there is only one rank.
  AxisSet axes_of_one() const {
    AxisSet axes;
    for (const Axis axis : kAllAxes) {
      if (size(axis) == 1) axes = axes | AxisSet{axis};
    }
    return axes;
  }
  // Returns true if this rank is the first along each of the axes.
  bool first_along(AxisSet axes) const {
    for (const Axis axis : kAllAxes) {
      if (axes.has(axis) && place(axis) != 0) return false;
    }
    return true;
  }
  bool operator==(const MeshPlace&) const = default;
};

}  // namespace tutti::training
