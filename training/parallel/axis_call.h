// Communication of a unit with the ranks along an axis of the mesh, this rank included. If count()
// is called, the object's lifetime counts as waiting for those ranks: the destructor adds this
// time, and the bytes that this rank sent, to Mesh::unit_traffic().
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/pass.h"
#include "training/parallel/mesh.h"

namespace tutti::training {

class AxisCall {
 public:
  AxisCall(Pass& pass, const MeshPlace& place, Axis axis)
      : pass_(pass), axis_(axis), place_(place.place(axis)), size_(place.size(axis)) {}
  ~AxisCall() {
    if (call_ == nullptr) return;
    if (alone()) {
      pass_.record_unsent({axis_, call_, sent_});
    } else {
      pass_.mesh->add_unit_traffic(axis_, call_, sent_, start_);
    }
  }
  AxisCall(const AxisCall&) = delete;
  AxisCall& operator=(const AxisCall&) = delete;

  // Returns true if the pass has no mesh, because a model is measured on one rank.
  bool alone() const { return pass_.mesh == nullptr; }
  Communicator& ranks() const { return pass_.mesh->along(axis_); }
  Pass& pass() const { return pass_; }
  int place() const { return place_; }
  int size() const { return size_; }

  // Counts a collective in which this rank sends `bytes` bytes. `call`: the collective's name
  // ("all_reduce"), a string literal.
  void count(const char* call, double bytes) {
    call_ = call;
    sent_ += bytes;
  }
  // Counts the minimum traffic of gathering or scattering a tensor `times` times.
  void count(const char* call, ConstTensor tensor, int times = 1) {
    count(call, times * static_cast<double>(tensor.bytes()) * (size_ - 1) / size_);
  }

  // Returns one block per rank, with count(rank) elements.
  template <typename Count>
  Blocks blocks(const Count& count) const {
    std::vector<uint64_t> counts;
    for (int rank = 0; rank < size_; ++rank) counts.push_back(static_cast<uint64_t>(count(rank)));
    return Blocks::of(counts);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Pass& pass_;
  Axis axis_;
  int place_;
  int size_;
  Clock::time_point start_ = Clock::now();
  const char* call_ = nullptr;  // name of the collective
  double sent_ = 0;             // bytes that this rank has sent
};

}  // namespace tutti::training
