// Tests device memory within one process: pointer attributes, copies, and exporting it to a rank in
// another thread.
#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "base/cuda/api.h"
#include "base/cuda/peer_memory.h"
#include "tests/base/cuda/harness.h"

namespace tutti::cuda {
namespace {

TEST(Memory, PointerAttributesAreReported) {
  const Context context(1);
  const DeviceMemory device(context, 1000);
  const PinnedMemory pinned(context, 100);
  int on_stack = 0;
  EXPECT_EQ(describe(device.data() + 999).kind, MemoryKind::device);
  EXPECT_EQ(describe(device.data() + 999).device, 1);
  EXPECT_EQ(describe(device.data()).context, context.handle());
  EXPECT_EQ(describe(pinned.data()).kind, MemoryKind::pinned);
  EXPECT_EQ(describe(&on_stack).kind, MemoryKind::host);
  const CurrentContext current(context);
  EXPECT_EQ(allocation_of(device.data() + 10).base, device.data());
  EXPECT_EQ(allocation_of(device.data() + 10).size, 1000u);
}

TEST(Memory, IsFreedOnceWhereverItMoves) {
  const Context context(0);
  DeviceMemory first(context, 64);
  std::byte* const at = first.data();
  const DeviceMemory second = std::move(first);
  EXPECT_EQ(describe(at).kind, MemoryKind::device);
  const CurrentContext current(context);
  EXPECT_EQ(api().mem_free.result(address(at + 1)), CUDA_ERROR_INVALID_VALUE);
}

TEST(Memory, CopiesOfHostMemoryReadItImmediately) {
  const Gpu gpu;
  const Stream stream(gpu.context);
  const DeviceMemory memory(gpu.context, 512 * sizeof(uint64_t));
  std::vector<uint64_t> values(512);
  std::iota(values.begin(), values.end(), uint64_t{7});
  const std::vector<uint64_t> expected = values;
  copy_async(memory.data(), values.data(), memory.size(), stream.handle());
  values.assign(values.size(), 0);
  EXPECT_EQ(gpu.read(stream.handle(), memory), expected);
  fill_async(memory.data(), std::byte{0xff}, memory.size(), stream.handle());
  EXPECT_EQ(gpu.read(stream.handle(), memory), std::vector<uint64_t>(512, ~uint64_t{0}));
}

TEST(Memory, CopiesStayInTheirAllocation) {
  const Gpu gpu;
  const Stream stream(gpu.context);
  const DeviceMemory memory(gpu.context, 100);
  const std::vector<std::byte> values(101);
  EXPECT_TRUE(
      says(error_of([&] { copy_async(memory.data(), values.data(), 101, stream.handle()); }),
           "CUDA_ERROR_INVALID_VALUE"));
}

TEST(Memory, MemoryOfAnotherThreadIsCopiedToo) {
  const Context here(0);
  const Context there(1);
  const DeviceMemory memory(there, 4096);
  const ExportedMemory exported = [&] {
    const CurrentContext current(there);
    return export_memory(memory.data() + 96);
  }();
  const ImportedMemory first(here, exported);
  const ImportedMemory second(here, exported);
  const ImportedMemory own(there, exported);
  EXPECT_EQ(first.data(), memory.data() + 96);
  EXPECT_EQ(first.size(), 4000u);
  EXPECT_EQ(own.data(), memory.data() + 96);
  const CurrentContext current(here);
  EXPECT_EQ(api().ctx_enable_peer_access.result(there.handle(), 0),
            CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

TEST(Memory, HostMemoryIsNotExported) {
  const Context context(0);
  const PinnedMemory pinned(context, 64);
  const CurrentContext current(context);
  EXPECT_EQ(error_of([&] { export_memory(pinned.data()); }).first, ErrorCode::invalid_argument);
}

TEST(Memory, TheDriverOpensNoHandleOfTheSameProcess) {
  const Context context(0);
  const DeviceMemory memory(context, 64);
  const CurrentContext current(context);
  CUdeviceptr opened = 0;
  const auto handle = std::bit_cast<CUipcMemHandle>(export_memory(memory.data()).handle.bytes);
  EXPECT_EQ(api().ipc_open_mem_handle.result(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api().ipc_close_mem_handle.result(address(memory.data())), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tutti::cuda
