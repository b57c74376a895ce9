// Tests devices, contexts, modules and error reports.
#include <gtest/gtest.h>

#include <thread>

#include "base/cuda/api.h"
#include "tests/base/cuda/harness.h"

namespace tutti::cuda {
namespace {

TEST(Driver, HasDevices) {
  ASSERT_TRUE(available());
  ASSERT_EQ(device_count(), 3);
  const DeviceInfo info = device_info(1);
  EXPECT_EQ(info.ordinal, 1);
  EXPECT_EQ(info.pci_bus_id, "0000:02:00.0");
  EXPECT_EQ(info.compute_capability, 90);
  EXPECT_GT(info.multiprocessors, 0);
  EXPECT_NE(info.uuid, device_info(2).uuid);
  EXPECT_FALSE(info.is_mig);
  EXPECT_TRUE(can_access_peer(0, 1));
  EXPECT_TRUE(can_access_peer(2, 2));
  EXPECT_TRUE(says(error_of([] { device_info(3); }), "GPU 3 does not exist: this process sees 3"));
}

TEST(Driver, MakesContextsCurrentByThreadAndScope) {
  const auto device = [] {
    CUdevice current = -1;
    api().ctx_get_device(&current);
    return current;
  };
  const Context first(0);
  const Context second(1);
  const CurrentContext outside(first);
  {
    const CurrentContext inside(second);
    EXPECT_EQ(device(), 1);
  }
  EXPECT_EQ(device(), 0);
  std::thread([&] {
    EXPECT_TRUE(says(error_of(device), "CUDA_ERROR_INVALID_CONTEXT (201)"));
    EXPECT_TRUE(says(error_of(device), "call cudaSetDevice"));
  }).join();
}

TEST(Driver, ContextsLiveAsLongAsTheirObjects) {
  CUcontext context = nullptr;
  {
    const DeviceMemory memory(Context(2), 64);
    context = describe(memory.data()).context;
    EXPECT_EQ(error_of([&] { const CurrentContext current(context); }).first, ErrorCode::ok);
  }
  EXPECT_TRUE(says(error_of([&] { const CurrentContext current(context); }),
                   "CUDA_ERROR_CONTEXT_IS_DESTROYED"));
}

TEST(Driver, ReportsTheFailedCallAndARemedy) {
  const Context context(0);
  const auto full = error_of([&] { DeviceMemory(context, size_t{1} << 40); });
  EXPECT_EQ(full.first, ErrorCode::system);
  EXPECT_TRUE(says(full, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"));
  EXPECT_TRUE(says(full, "nvidia-smi"));
  EXPECT_EQ(failure("cuModuleLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU).code(),
            ErrorCode::unsupported);
}

TEST(Driver, FindsKernels) {
  const Gpu gpu;
  const CUfunction fill = gpu.module.function("fill");
  EXPECT_EQ(function_info(fill).local_bytes, 0u);
  EXPECT_GE(function_info(fill).most_threads, 16);
  allow_shared_bytes(fill, 100 << 10);
  EXPECT_EQ(error_of([&] { allow_shared_bytes(fill, 1 << 30); }).first, ErrorCode::system);
  const auto missing = error_of([&] { gpu.module.function("nothing"); });
  EXPECT_EQ(missing.first, ErrorCode::unsupported);
  EXPECT_TRUE(says(missing, "CUDA kernel nothing is missing"));
}

}  // namespace
}  // namespace tutti::cuda
