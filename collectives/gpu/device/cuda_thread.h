// A thread of a kernel on NVIDIA's GPUs: all that collectives/gpu asks of one. Scope is always the
// system: the other side may be another GPU, or the host. (PTX ISA, "Memory Consistency Model".)
#pragma once

#include <cstdint>

#include "collectives/gpu/device/grid_thread.h"
#include "collectives/gpu/device/words.h"

namespace tutti::gpu {

struct CudaThread : GridThread {
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
