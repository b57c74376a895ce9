// A job's ranks as a grid whose axes are kinds of parallelism (axes.h). The first axis changes
// fastest from rank to rank. An axis that nothing uses has one place, and costs nothing.
//
//   data 2 x pipeline 3:      rank   0 1 | 2 3 | 4 5
//                             data   0 1 | 0 1 | 0 1
//                             stage   0  |  1  |  2
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "topology/domain.h"
#include "training/core/axes.h"
#include "training/parallel/buffer_pool.h"

namespace tutti::training {

class Trace;

// Ranks along each axis. 0 (of one axis): as many as the job's ranks leave.
struct MeshShape {
  int tensor = 1;
  int context = 1;
  int data = 0;
  int pipeline = 1;
  // A grid of ranks that share out the pixels of each image.
  GridShape spatial = {};
  // Expert-parallel ranks: a part of the product of tensor, context and data ranks. At least 1.
  int expert = 1;

  // Number of ranks in a stage that share each sample.
  int64_t of_a_sample() const { return int64_t{tensor} * context * spatial.ranks(); }
};

// A value; copies have the same groups. One thread at a time.
class Mesh {
 public:
  // Collective, over all ranks of `world`. Throws as mesh_place() on every rank. By default all
  // ranks are data-parallel.
  Mesh(Communicator world, const MeshShape& shape = {});  // NOLINT(google-explicit-constructor)

  Communicator& world() { return world_; }
  const Communicator& world() const { return world_; }
  // The ranks that differ from this one in their places along these axes only, in their order in
  // the world. Made at the first call, which is collective among them: all of a group's ranks ask
  // for their groups in one order.
  Communicator& group(AxisSet axes);
  Communicator& along(Axis axis) { return group({axis}); }

  // The hosts of a group's ranks, and a communicator of those on this host. Made at the first call,
  // as the group is.
  struct ByHosts {
    Hosts hosts;  // of the group's ranks
    Communicator inside;
    std::vector<int> numbers;  // of these ranks in the group
  };
  ByHosts& by_hosts(AxisSet axes);
  // Sets the name of this rank's host, for tests.
  void set_host(std::string name) { host_ = std::move(name); }

  // What units have said to each other (convert_layout.h) since this was made: the bytes that this
  // rank sent, by axis, and the time that it stood still for it.
  struct Said {
    std::array<double, kAxes> bytes = {};
    std::chrono::nanoseconds waited{0};
    Trace* trace = nullptr;
  };
  const Said& said() const { return *said_; }
  // One call, a literal ("all_reduce"), that ends now.
  void add_said(Axis axis, const char* call, double bytes,
                std::chrono::steady_clock::time_point start);
  // Such calls are events of it from now on; it outlives this and copies.
  void record(Trace& trace) { said_->trace = &trace; }

  // Memory for messages along an axis, which ranks of the host read where it lies. In the memory
  // that the first call says.
  BufferPool& messages(Axis axis, const Backend* backend);
  // That was taken of all.
  int64_t message_bytes() const;

  // Aborts the world and all groups that were made, on every rank.
  void abort(const std::string& reason);

  const MeshPlace& place() const { return place_; }
  int size(Axis axis) const { return place_.size(axis); }
  // This rank's place, and that of any rank of the world.
  int place(Axis axis) const { return place_.place(axis); }
  int place_of(int rank, Axis axis) const { return place_.of_rank(rank).place(axis); }
  // The axes of more than one place.
  AxisSet used() const;
  // Whether that rank has this one's places along all of these axes.
  bool is_beside(int rank, AxisSet axes) const;

 private:
  Communicator world_;
  MeshPlace place_;
  std::string host_;
  std::shared_ptr<std::map<AxisSet, Communicator>> groups_;  // by axes of more than one place
  std::shared_ptr<std::map<AxisSet, ByHosts>> by_hosts_ =
      std::make_shared<std::map<AxisSet, ByHosts>>();
  std::shared_ptr<std::map<Axis, BufferPool>> messages_ =
      std::make_shared<std::map<Axis, BufferPool>>();
  std::shared_ptr<Said> said_ = std::make_shared<Said>();
};

// The place of rank 0, with the free axis resolved. Experts are sharded over data ranks if their
// number allows it (the axis expert), else over context or tensor ranks, too:
//
//   tensor 2 x data 4   experts over 2 or 4 ranks   data 2 or 4
//                       over 8                      tensor 2 x data 4
//   tensor 2 x data 1   over 2                      tensor 2
//
// Throws Error(invalid_argument) if the axes' product is not the number of ranks, or no set of axes
// has as many ranks as shape.expert.
MeshPlace mesh_place(const MeshShape& shape, int ranks);

}  // namespace tutti::training
