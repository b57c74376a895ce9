// A thread of a kernel on NVIDIA's GPUs: all that collectives/gpu asks of one. Scope is always the
// system: the other side may be another GPU, or the host. (PTX ISA, "Memory Consistency Model".)
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/gpu/device/words.h"

namespace tutti::gpu {

struct CudaThread {
  // Turns of a wait between two looks at the host's memory, which is a microsecond away.
  static constexpr uint32_t kSpinsPerLook = 1000;

  __device__ __forceinline__ unsigned index() const { return threadIdx.x; }
  __device__ __forceinline__ unsigned threads() const { return blockDim.x; }
  __device__ __forceinline__ unsigned block() const { return blockIdx.x; }
  __device__ __forceinline__ unsigned blocks() const { return gridDim.x; }

  // Of the block's threads. What was written before it is seen by all of them after it.
  __device__ __forceinline__ void barrier() { __syncthreads(); }
  // Memory of the block, as much as the launch asked for.
  __device__ __forceinline__ std::byte* shared() {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<std::byte*>(memory);
  }
  // In each turn of a loop that waits for others.
  __device__ __forceinline__ void pause() {}

  __device__ __forceinline__ uint64_t load_acquire(const uint64_t* from) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ __forceinline__ void store_release(uint64_t* to, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  __device__ __forceinline__ uint64_t load_relaxed(const uint64_t* from) {
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  // In the block's own memory.
  __device__ __forceinline__ uint32_t load_shared(const uint32_t* from) {
    return *static_cast<const volatile uint32_t*>(from);
  }
  __device__ __forceinline__ void store_shared(uint32_t* to, uint32_t value) {
    *static_cast<volatile uint32_t*>(to) = value;
  }
  __device__ __forceinline__ Line load_line(const Line* from) {
    Line line;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(line.data0), "=r"(line.flag0), "=r"(line.data1), "=r"(line.flag1)
                 : "l"(from)
                 : "memory");
    return line;
  }
  __device__ __forceinline__ void store_line(Line* to, const Line& line) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(line.data0),
                 "r"(line.flag0), "r"(line.data1), "r"(line.flag1)
                 : "memory");
  }
};

}  // namespace tutti::gpu
