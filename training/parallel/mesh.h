// A job's ranks as a grid whose axes are kinds of parallelism. The first axis changes fastest from
// rank to rank, so what talks most comes first and stays inside a host (Narayanan et al., 2021:
// tensor inside the node, pipelines across).
//
//   data 2 x pipeline 3:      rank   0 1 | 2 3 | 4 5
//                             data   0 1 | 0 1 | 0 1
//                             stage   0  |  1  |  2
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "collectives/communicator.h"

namespace tutti::training {

enum class Axis { tensor, data, pipeline };  // in rank order, the fastest first
inline constexpr int kAxes = 3;
std::string_view name(Axis axis);

// Ranks along each axis. 0 (of one axis): as many as the job's ranks leave.
struct MeshShape {
  int tensor = 1;
  int data = 0;
  int pipeline = 1;
};

class Mesh {
 public:
  // Collective, over all ranks of `world`. Throws Error(invalid_argument) on every rank if the
  // axes' product is not the number of ranks. By default all ranks are data-parallel.
  Mesh(Communicator world, const MeshShape& shape = {});  // NOLINT(google-explicit-constructor)

  Communicator& world() { return world_; }
  const Communicator& world() const { return world_; }
  // The ranks that differ from this one in their place along `axis` only, in its order.
  Communicator& along(Axis axis) { return along_[index(axis)]; }
  int size(Axis axis) const { return sizes_[index(axis)]; }
  // This rank's place, and that of any rank of the world.
  int place(Axis axis) const { return places_[index(axis)]; }
  int place_of(int rank, Axis axis) const;

 private:
  static size_t index(Axis axis) { return static_cast<size_t>(axis); }

  Communicator world_;
  std::array<int, kAxes> sizes_{};
  std::array<int, kAxes> places_{};
  std::array<Communicator, kAxes> along_;
};

// The sizes of all axes, once the free one is known; throws as Mesh does.
std::array<int, kAxes> mesh_sizes(const MeshShape& shape, int ranks);

}  // namespace tutti::training
