// What a thread of a kernel is on the GPUs of both makers alike: its place in the grid, and what
// the threads of a block share. What reaches beyond the block is each maker's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::gpu {

struct GridThread {
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

  // In the block's own memory.
  __device__ __forceinline__ uint32_t load_shared(const uint32_t* from) {
    return *static_cast<const volatile uint32_t*>(from);
  }
  __device__ __forceinline__ void store_shared(uint32_t* to, uint32_t value) {
    *static_cast<volatile uint32_t*>(to) = value;
  }
};

}  // namespace tutti::gpu
