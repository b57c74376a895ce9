// A thread of a kernel on the emulated GPU, corresponding to collectives/gpu/device/cuda_thread.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/gpu/device/words.h"
#include "collectives/gpu/element.h"

namespace tutti::host_gpu {

class FiberBlock;

class Thread {
 public:
  static constexpr bool kHasMulticast = true;
  static constexpr uint32_t kSpinsPerLook = 1;

  Thread(FiberBlock& block, unsigned index) : block_(&block), index_(index) {}

  unsigned index() const { return index_; }
  unsigned threads() const;
  unsigned block() const;
  unsigned blocks() const;
  std::byte* shared();
  void barrier();
  void pause();

  uint64_t load_acquire(const uint64_t* from) { return load(from, std::memory_order_acquire); }
  uint64_t load_relaxed(const uint64_t* from) { return load(from, std::memory_order_relaxed); }
  void store_release(uint64_t* to, uint64_t value) {
    std::atomic_ref(*to).store(value, std::memory_order_release);
  }
  // Each store is a release, because the thread sanitizer does not model fences.
  void fence() {}
  void store_after_fence(uint64_t* to, uint64_t value) { store_release(to, value); }
  uint32_t load_shared(const uint32_t* from) { return load(from, std::memory_order_relaxed); }
  void store_shared(uint32_t* to, uint32_t value) {
    std::atomic_ref(*to).store(value, std::memory_order_relaxed);
  }
  // Sums the values at the members' addresses of a multicast address, in order.
  template <typename E>
  gpu::Vector load_sum(const std::byte* multicast) {
    gpu::Pack<E> sum{};
    const Members& members = members_of(multicast);
    const size_t offset = reinterpret_cast<uintptr_t>(multicast) - members.of;
    for (size_t i = 0; i < members.count; ++i) {
      gpu::Vector vector;
      std::memcpy(&vector, members.at[i] + offset, sizeof vector);
      const gpu::Pack<E> next = gpu::widen<E>(vector);
      sum = i == 0 ? next : gpu::combine<E>(ReduceOp::sum, sum, next);
    }
    return gpu::narrow<E>(sum);
  }
  void store_to_all(std::byte* multicast, const gpu::Vector& vector) {
    const Members& members = members_of(multicast);
    const size_t offset = reinterpret_cast<uintptr_t>(multicast) - members.of;
    for (size_t i = 0; i < members.count; ++i) {
      std::memcpy(members.at[i] + offset, &vector, sizeof vector);
    }
  }
  void fence_aliases() {}
  // Loads the line's two halves separately, because no caller relies on more atomicity.
  gpu::Line load_line(const gpu::Line* from);
  void store_line(gpu::Line* to, const gpu::Line& line);

 private:
  // Members of a multicast address.
  struct Members {
    uintptr_t of = 0;
    size_t bytes = 0;
    std::byte* at[16] = {};
    size_t count = 0;
  };
  // Returns the members for 16 bytes. Ends the process if `multicast` is no multicast address.
  const Members& members_of(const std::byte* multicast);

  template <typename T>
  static T load(const T* from, std::memory_order order) {
    return std::atomic_ref(*const_cast<T*>(from)).load(order);
  }

  FiberBlock* block_;
  unsigned index_;
  Members members_;  // members that were looked up last
};

}  // namespace tutti::host_gpu
