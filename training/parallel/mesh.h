// A job's ranks as a grid whose axes are kinds of parallelism (axes.h). The first axis varies
// fastest from rank to rank. An unused axis has size 1 and costs nothing.
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

// Number of ranks along each axis. One axis may have size 0, which means as many ranks as the other
// axes leave.
struct MeshShape {
  int tensor = 1;
  int context = 1;
  int data = 0;
  int pipeline = 1;
  // Shape of the grid of ranks that divide the pixels of each image.
  GridShape spatial = {};
  // Number of expert-parallel ranks, at least 1. It divides the product of the numbers of tensor,
  // context and data ranks.
  int expert = 1;

  // Returns the number of ranks in a stage that share each sample.
  int64_t of_a_sample() const { return int64_t{tensor} * context * spatial.ranks(); }
};

// The mesh. It is a value whose copies share their groups. One thread at a time may use it.
class Mesh {
 public:
  // Creates a mesh; collective over all ranks of `world`. By default all ranks are data-parallel.
  // Throws as mesh_place() does, on every rank.
  Mesh(Communicator world, const MeshShape& shape = {});  // NOLINT(google-explicit-constructor)

  Communicator& world() { return world_; }
  const Communicator& world() const { return world_; }
  // Returns the process group of the ranks whose mesh coordinates equal this rank's on all axes
  // except `axes`, ordered by world rank. The first call creates the group and is collective over
  // its members, so all ranks must request their groups in the same order.
  Communicator& group(AxisSet axes);
  Communicator& along(Axis axis) { return group({axis}); }

  // The hosts of a group's ranks, and a communicator of the group's ranks on this host. The first
  // call of by_hosts() for some axes creates both, and is collective over the group.
  struct ByHosts {
    Hosts hosts;  // hosts of the group's ranks
    Communicator inside;
    std::vector<int> numbers;  // indices in the group of the ranks on this host
  };
  ByHosts& by_hosts(AxisSet axes);
  // Sets the name of this rank's host, for tests.
  void set_host(std::string name) { host_ = std::move(name); }

  // Statistics of the communication inside units (convert_layout.h) since construction: bytes that
  // this rank sent, by axis, and the time for which it blocked.
  struct UnitTraffic {
    std::array<double, kAxes> bytes = {};
    std::chrono::nanoseconds waited{0};
    Trace* trace = nullptr;
  };
  const UnitTraffic& unit_traffic() const { return *unit_traffic_; }
  // Counts a call that started at `start` and ends now. `call`: its name ("all_reduce"), a string
  // literal.
  void add_unit_traffic(Axis axis, const char* call, double bytes,
                        std::chrono::steady_clock::time_point start);
  // Records the counted calls as trace events from now on; `trace` must outlive the mesh and its
  // copies.
  void record(Trace& trace) { unit_traffic_->trace = &trace; }

  // Returns the pool of buffers for messages along `axis`. Other ranks of the host can read the
  // buffers directly. The first call for an axis determines the backend that allocates them; later
  // calls ignore `backend`.
  BufferPool& messages(Axis axis, const Backend* backend);
  // Returns the bytes of all pools' buffers.
  int64_t message_bytes() const;

  // Aborts the world and all groups created so far, on every rank.
  void abort(const std::string& reason);

  const MeshPlace& place() const { return place_; }
  int size(Axis axis) const { return place_.size(axis); }
  // Return the place along `axis` of this rank, and of `rank` of the world.
  int place(Axis axis) const { return place_.place(axis); }
  int place_of(int rank, Axis axis) const { return place_.of_rank(rank).place(axis); }
  // Returns the axes with more than one place.
  AxisSet used() const;
  // Returns true if `rank` has the same place as this rank along each of `axes`.
  bool is_beside(int rank, AxisSet axes) const;

 private:
  Communicator world_;
  MeshPlace place_;
  std::string host_;
  // key: those of the group's axes that have more than one place
  std::shared_ptr<std::map<AxisSet, Communicator>> groups_;
  std::shared_ptr<std::map<AxisSet, ByHosts>> by_hosts_ =
      std::make_shared<std::map<AxisSet, ByHosts>>();
  std::shared_ptr<std::map<Axis, BufferPool>> messages_ =
      std::make_shared<std::map<Axis, BufferPool>>();
  std::shared_ptr<UnitTraffic> unit_traffic_ = std::make_shared<UnitTraffic>();
};

// Returns the place of rank 0, with the free axis resolved. Experts are sharded over data ranks
// (the axis expert) if shape.expert allows it, otherwise over context or tensor-parallel ranks as
// well:
//
//   tensor 2 x data 4   experts over 2 or 4 ranks   data 2 or 4
//                       over 8                      tensor 2 x data 4
//   tensor 2 x data 1   over 2                      tensor 2
//
// Throws Error(invalid_argument) if the product of the axes' sizes is not the number of ranks, if
// the spatial grid is invalid or larger than the number of ranks, or if no set of axes has
// shape.expert ranks.
MeshPlace mesh_place(const MeshShape& shape, int ranks);

}  // namespace tutti::training
