// Memory of the caller's that kernels of all ranks of a communicator read and write where it lies:
// windows. Each rank brings as much of its own GPU's, and calls whose buffers are at the same place
// in windows on all ranks need no slots for what they only move (lending.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/multicast.h"
#include "base/cuda/peer_memory.h"
#include "collectives/gpu/agreement.h"
#include "collectives/gpu/call.h"
#include "collectives/request.h"

namespace tutti::gpu {

// Of one rank. Its parts are made one after the other, all ranks at a time (Windows::add).
class Window {
 public:
  Window(int rank, int ranks, const cuda::Context& context, void* data, size_t bytes);

  struct Told {  // to the other ranks: plain bytes
    uint64_t bytes = 0;
    cuda::ExportedMemory memory;
    bool can_be_multicast = false;
  };
  Told told() const;
  // `all`: what the ranks told. Throws where this rank does not reach one of them.
  void reach(std::span<const Told> all);

  // Makes addresses that stand for all ranks' memory, where `all` can have some. Collective.
  void make_multicast(std::span<const Told> all, const Exchange& exchange);

  // Of rank `peer`, as this rank reaches it.
  std::byte* start_of(int peer) const { return starts_[static_cast<size_t>(peer)]; }
  bool contains(const void* data, size_t bytes) const;
  uint64_t offset_of(const void* data) const;
  // In the device's memory: the window's start in each rank's memory, as this rank reaches it.
  std::byte* const* of_ranks() const { return reinterpret_cast<std::byte* const*>(table_.data()); }
  // Of the window's start; null: there is none.
  std::byte* multicast() const;

 private:
  const int rank_;
  const int ranks_;
  const cuda::Context context_;
  std::byte* const data_;
  const size_t bytes_;
  const cuda::OfferedMemory offered_;
  std::vector<cuda::ImportedMemory> imported_;
  std::vector<std::byte*> starts_;
  cuda::DeviceMemory table_;  // the same
  std::optional<cuda::Multicast> multicast_;
};

// Those of a communicator. Any thread, but add().
class Windows {
 public:
  Windows(int rank, int ranks, const cuda::Context& context)
      : rank_(rank), ranks_(ranks), context_(context) {}

  // Collective: as many bytes on each rank. The number by which to remove it. Throws on all ranks
  // where one cannot share its memory, or reach another's.
  uint64_t add(void* data, size_t bytes, const Exchange& exchange);
  // Once no call uses it.
  void remove(uint64_t number);

  // Where the call's buffers are in windows, as all ranks say alike if they keep to the rules.
  std::optional<LentBuffers> find(const Request& request) const;
  // Rank `peer`'s memory at the place that this rank's has in its window; null: it is in none.
  std::byte* at(const void* data, size_t bytes, int peer) const;
  // The same number on all ranks for the same place in a window; 0: the memory is in none.
  uint64_t place_of(const void* data, size_t bytes) const;

 private:
  struct Place {
    uint64_t number = 0;
    std::shared_ptr<const Window> window;
    LentBuffer buffer;
    std::byte* multicast = nullptr;
  };
  std::optional<Place> find(const void* data, size_t bytes, uint64_t stride) const;

  const int rank_;
  const int ranks_;
  const cuda::Context context_;
  uint64_t added_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::pair<uint64_t, std::shared_ptr<const Window>>> windows_;  // by number
};

}  // namespace tutti::gpu
