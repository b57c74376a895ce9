// The kernels as compiled by nvcc and hipcc, one per element type (kernels.h).
#if defined(__HIPCC__)
#include "collectives/gpu/device/hip_thread.h"
using DeviceThread = tutti::gpu::HipThread;
#else
#include "collectives/gpu/device/cuda_thread.h"
using DeviceThread = tutti::gpu::CudaThread;
#endif

#include "collectives/gpu/run_call.h"

// TUTTI_GRID_CONSTANT lets threads read the parameter where the driver has put it; without it, each
// thread would make a copy.
#define TUTTI_KERNEL(type, ...)                                                                  \
  extern "C" __global__ void __launch_bounds__(tutti::gpu::kMostThreads, 1) tutti_run_##type(       \
      const TUTTI_GRID_CONSTANT tutti::gpu::Launch launch) {                                     \
    DeviceThread thread;                                                                         \
    tutti::gpu::run_call<__VA_ARGS__>(thread, launch);                                           \
  }

using namespace tutti::kernels;  // NOLINT: elements, each named once
using tutti::gpu::PairOf;

TUTTI_KERNEL(i8, Integer<int8_t, uint8_t>)
TUTTI_KERNEL(i16, Integer<int16_t, uint16_t>)
TUTTI_KERNEL(i32, Integer<int32_t, uint32_t>)
TUTTI_KERNEL(i64, Integer<int64_t, uint64_t>)
TUTTI_KERNEL(u8, Integer<uint8_t, uint8_t>)
TUTTI_KERNEL(u16, Integer<uint16_t, uint16_t>)
TUTTI_KERNEL(u32, Integer<uint32_t, uint32_t>)
TUTTI_KERNEL(u64, Integer<uint64_t, uint64_t>)
TUTTI_KERNEL(f16, Small<F16>)
TUTTI_KERNEL(bf16, Small<BF16>)
TUTTI_KERNEL(f32, Float<float>)
TUTTI_KERNEL(f64, Float<double>)
TUTTI_KERNEL(f8e4m3, Small<F8E4M3>)
TUTTI_KERNEL(f8e5m2, Small<F8E5M2>)
TUTTI_KERNEL(f32_i32, PairOf<float, int32_t>)
TUTTI_KERNEL(f64_i64, PairOf<double, int64_t>)
TUTTI_KERNEL(i32_i32, PairOf<int32_t, int32_t>)
TUTTI_KERNEL(i64_i64, PairOf<int64_t, int64_t>)
