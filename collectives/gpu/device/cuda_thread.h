// A thread of a kernel on NVIDIA GPUs, with all device operations that collectives/gpu uses. The
// scope of all operations is the system, because the peer may be another GPU or the host. (PTX ISA,
// "Memory Consistency Model".)
#pragma once

#include <cstdint>

#include "collectives/gpu/device/grid_thread.h"
#include "collectives/gpu/device/words.h"
#include "collectives/gpu/element.h"

namespace tutti::gpu {

struct CudaThread : GridThread {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr bool kHasMulticast = true;
#else
  static constexpr bool kHasMulticast = false;
#endif

  // Does nothing; called in each iteration of a wait loop.
  __device__ __forceinline__ void pause() {}

  __device__ __forceinline__ uint64_t load_acquire(const uint64_t* from) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ __forceinline__ void store_release(uint64_t* to, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  // Makes the block's earlier writes visible to any observer of a word stored afterwards.
  __device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
  __device__ __forceinline__ void store_after_fence(uint64_t* to, uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  __device__ __forceinline__ uint64_t load_relaxed(const uint64_t* from) {
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  // Returns the sum of 16 bytes over all ranks' memory, computed by the switch (PTX ISA,
  // "multimem").
  template <typename E>
  __device__ __forceinline__ Vector load_sum(const std::byte* multicast) {
    Vector sum;
    if constexpr (sizeof(typename E::Stored) == sizeof(float)) {
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(sum.words[0]), "=r"(sum.words[1]), "=r"(sum.words[2]), "=r"(sum.words[3])
                   : "l"(multicast)
                   : "memory");
    } else if constexpr (kIsF16<E>) {
      asm volatile(
          "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
          : "=r"(sum.words[0]), "=r"(sum.words[1]), "=r"(sum.words[2]), "=r"(sum.words[3])
          : "l"(multicast)
          : "memory");
    } else {
      asm volatile(
          "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
          : "=r"(sum.words[0]), "=r"(sum.words[1]), "=r"(sum.words[2]), "=r"(sum.words[3])
          : "l"(multicast)
          : "memory");
    }
    return sum;
  }
  __device__ __forceinline__ void store_to_all(std::byte* multicast, const Vector& vector) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(multicast),
                 "r"(vector.words[0]), "r"(vector.words[1]), "r"(vector.words[2]),
                 "r"(vector.words[3])
                 : "memory");
  }
  // Orders accesses to the same memory through a multicast address and through ordinary addresses.
  __device__ __forceinline__ void fence_aliases() {
    asm volatile("fence.proxy.alias;" ::: "memory");
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
