// A thread of a kernel on AMD GPUs; cuda_thread.h has the same functions for NVIDIA GPUs. The scope
// of all operations is the system. This code compiles but has not run on an AMD GPU.
//
// Assumptions about the memory model (LLVM, "User Guide for AMDGPU Backend", Memory Model gfx90a,
// gfx942): an aligned 8-byte store is atomic, and system scope reaches other GPUs in fine-grained
// memory. Mailboxes would have to be allocated in such memory (hipExtMallocWithFlags). A line
// consists of two 8-byte stores, each with its own flag.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "collectives/gpu/device/grid_thread.h"
#include "collectives/gpu/device/words.h"

namespace tutti::gpu {

struct HipThread : GridThread {
  static constexpr bool kHasMulticast = false;

  // Yields memory bandwidth to the wavefronts that write the awaited data.
  __device__ __forceinline__ void pause() { __builtin_amdgcn_s_sleep(1); }

  __device__ __forceinline__ uint64_t load_acquire(const uint64_t* from) {
    return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
  }
  __device__ __forceinline__ void store_release(uint64_t* to, uint64_t value) {
    __hip_atomic_store(to, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  }
  __device__ __forceinline__ void fence() { __threadfence_system(); }
  __device__ __forceinline__ void store_after_fence(uint64_t* to, uint64_t value) {
    __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  }
  __device__ __forceinline__ uint64_t load_relaxed(const uint64_t* from) {
    return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  }
  __device__ __forceinline__ Line load_line(const Line* from) {
    const auto* const halves = reinterpret_cast<const uint64_t*>(from);
    const uint64_t first = load_relaxed(halves);
    const uint64_t second = load_relaxed(halves + 1);
    return {.data0 = static_cast<uint32_t>(first),
            .flag0 = static_cast<uint32_t>(first >> 32),
            .data1 = static_cast<uint32_t>(second),
            .flag1 = static_cast<uint32_t>(second >> 32)};
  }
  __device__ __forceinline__ void store_line(Line* to, const Line& line) {
    auto* const halves = reinterpret_cast<uint64_t*>(to);
    store_half(halves, line.data0, line.flag0);
    store_half(halves + 1, line.data1, line.flag1);
  }

 private:
  __device__ __forceinline__ static void store_half(uint64_t* to, uint32_t data, uint32_t flag) {
    __hip_atomic_store(to, data | static_cast<uint64_t>(flag) << 32, __ATOMIC_RELAXED,
                       __HIP_MEMORY_SCOPE_SYSTEM);
  }
};

}  // namespace tutti::gpu
