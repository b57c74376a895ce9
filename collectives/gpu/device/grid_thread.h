// The part of a kernel's thread that is common to both vendors' GPUs: its index in the grid, and
// the memory and barrier of its block. Operations beyond the block are vendor-specific.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::gpu {

struct GridThread {
  // Iterations of a wait loop between two reads of host memory; each read takes about a
  // microsecond.
  static constexpr uint32_t kSpinsPerLook = 1000;

  __device__ __forceinline__ unsigned index() const { return threadIdx.x; }
  __device__ __forceinline__ unsigned threads() const { return blockDim.x; }
  __device__ __forceinline__ unsigned block() const { return blockIdx.x; }
  __device__ __forceinline__ unsigned blocks() const { return gridDim.x; }

  // Waits for all threads of the block. Earlier writes are then visible to all of them.
  __device__ __forceinline__ void barrier() { __syncthreads(); }
  // Returns the block's shared memory, whose size was given at launch.
  __device__ __forceinline__ std::byte* shared() {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<std::byte*>(memory);
  }

  // Accesses the block's shared memory.
  __device__ __forceinline__ uint32_t load_shared(const uint32_t* from) {
    return *static_cast<const volatile uint32_t*>(from);
  }
  __device__ __forceinline__ void store_shared(uint32_t* to, uint32_t value) {
    *static_cast<volatile uint32_t*>(to) = value;
  }
};

}  // namespace tutti::gpu
