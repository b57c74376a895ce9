// A thread of a kernel on the emulated GPU: what collectives/gpu/device/cuda_thread.h is on a real
// one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/gpu/device/words.h"

namespace tutti::host_gpu {

class FiberBlock;

class Thread {
 public:
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
  uint32_t load_shared(const uint32_t* from) { return load(from, std::memory_order_relaxed); }
  void store_shared(uint32_t* to, uint32_t value) {
    std::atomic_ref(*to).store(value, std::memory_order_relaxed);
  }
  // Its two halves apart from each other, as no more is relied on.
  gpu::Line load_line(const gpu::Line* from);
  void store_line(gpu::Line* to, const gpu::Line& line);

 private:
  template <typename T>
  static T load(const T* from, std::memory_order order) {
    return std::atomic_ref(*const_cast<T*>(from)).load(order);
  }

  FiberBlock* block_;
  unsigned index_;
};

}  // namespace tutti::host_gpu
