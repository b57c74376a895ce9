// Windows: memory of the caller that the kernels of all ranks of a communicator access in place.
// Each rank contributes equally much memory of its own GPU. A call whose buffers are at the same
// location in windows on all ranks needs no slots for data that it only moves (lending.h).
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

// A window on one rank. After construction, all ranks together call reach() and make_multicast()
// (Windows::add).
class Window {
 public:
  Window(int rank, int ranks, const cuda::Context& context, void* data, size_t bytes);

  struct Description {  // sent to the other ranks as plain bytes
    uint64_t bytes = 0;
    cuda::ExportedMemory memory;
    bool can_be_multicast = false;
  };
  Description description() const;
  // Maps the other ranks' memory. `all[r]`: description() of rank r. Throws if this rank cannot
  // access another rank's memory.
  void reach(std::span<const Description> all);

  // Creates the multicast address, which stands for the windows of all ranks, if the GPUs and the
  // memory of all ranks support it. Collective.
  void make_multicast(std::span<const Description> all, const Exchange& exchange);

  // Returns the start of rank `peer`'s window as mapped by this rank.
  std::byte* start_of(int peer) const { return starts_[static_cast<size_t>(peer)]; }
  bool contains(const void* data, size_t bytes) const;
  uint64_t offset_of(const void* data) const;
  // Returns a device array with the window's start on each rank, as mapped by this rank.
  std::byte* const* of_ranks() const { return reinterpret_cast<std::byte* const*>(table_.data()); }
  // Returns the multicast address of the window's start; null: none.
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
  cuda::DeviceMemory table_;  // device copy of starts_
  std::optional<cuda::Multicast> multicast_;
};

// The windows of a communicator. Thread-safe except add().
class Windows {
 public:
  Windows(int rank, int ranks, const cuda::Context& context)
      : rank_(rank), ranks_(ranks), context_(context) {}

  // Adds a window and returns the ID that remove() takes. Collective, with equally many bytes on
  // each rank. Throws on all ranks if one cannot share its memory or access another's.
  uint64_t add(void* data, size_t bytes, const Exchange& exchange);
  // Removes a window. No call may be using it.
  void remove(uint64_t number);

  // Returns the call's buffers as mapped by this rank; nullopt if a buffer is empty or in no
  // window. The result is equal on all ranks if the program follows the rules of
  // Communicator::register_window().
  std::optional<LentBuffers> find(const Request& request) const;
  // Returns rank `peer`'s memory that corresponds to `data` in this rank's window; null if `data`
  // is in no window.
  std::byte* at(const void* data, size_t bytes, int peer) const;
  // Returns a hash of the window and the offset of `data` in it, which is equal on all ranks; 0 if
  // the memory is in no window.
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
  std::vector<std::pair<uint64_t, std::shared_ptr<const Window>>> windows_;  // each with its ID
};

}  // namespace tutti::gpu
