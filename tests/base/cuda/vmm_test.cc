// Tests virtual memory management within one process: the rules of the calls, and SharedMemory.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <utility>

#include "base/cuda/api.h"
#include "base/cuda/peer_memory.h"
#include "tests/base/cuda/harness.h"
#include "tests/support/leftovers.h"

namespace tutti::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

CUmemAllocationProp properties(int device = 0) {
  return {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
          .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
          .win32HandleMetaData = nullptr,
          .allocFlags = {}};
}

CUmemAccessDesc access(CUmemAccess_flags flags, int device = 0) {
  return {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}, .flags = flags};
}

struct Vmm : ::testing::Test {
  CUmemGenericAllocationHandle create(size_t bytes) {
    CUmemGenericAllocationHandle made = 0;
    const CUmemAllocationProp wanted = properties();
    api().mem_create(&made, bytes, &wanted, 0);
    return made;
  }
  CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr at = 0;
    api().mem_address_reserve(&at, bytes, 0, 0, 0);
    return at;
  }
  size_t mappings() const {
    std::ifstream file("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }

  Gpu gpu;
};

TEST_F(Vmm, SizesAreMultiplesOfTheGranularity) {
  size_t granularity = 0;
  CUmemAllocationProp wanted = properties();
  api().mem_get_allocation_granularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  EXPECT_EQ(granularity, 2 * kMiB);
  CUmemGenericAllocationHandle made = 0;
  EXPECT_EQ(api().mem_create.result(&made, kMiB, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().mem_create.result(&made, size_t{1} << 40, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  wanted.location.id = 99;
  EXPECT_EQ(api().mem_create.result(&made, 2 * kMiB, &wanted, 0), CUDA_ERROR_INVALID_DEVICE);
  wanted = properties();
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT_EQ(api().mem_create.result(&made, 2 * kMiB, &wanted, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(Vmm, IsMappedOnlyAtReservedAndFreeAddresses) {
  const auto memory = create(2 * kMiB);
  const CUdeviceptr at = reserve(4 * kMiB);
  const auto map = [&](CUdeviceptr where, size_t size, size_t offset) {
    return api().mem_map.result(where, size, offset, memory, 0);
  };
  EXPECT_EQ(map(at + kMiB, 2 * kMiB, 0), CUDA_ERROR_INVALID_VALUE);      // not aligned
  EXPECT_EQ(map(at, 4 * kMiB, 0), CUDA_ERROR_INVALID_VALUE);             // larger than the memory
  EXPECT_EQ(map(at, 2 * kMiB, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);      // only offset 0 is allowed
  EXPECT_EQ(map(at + 4 * kMiB, 2 * kMiB, 0), CUDA_ERROR_INVALID_VALUE);  // not reserved
  EXPECT_EQ(map(at, 2 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(map(at, 2 * kMiB, 0), CUDA_ERROR_INVALID_VALUE);  // the addresses are in use
  EXPECT_EQ(map(at + 2 * kMiB, 2 * kMiB, 0), CUDA_SUCCESS);   // memory may be mapped twice
  EXPECT_EQ(api().mem_address_free.result(at, 4 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().mem_unmap.result(at, kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().mem_unmap.result(at, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(api().mem_unmap.result(at, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().mem_address_free.result(at, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().mem_address_free.result(at, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(api().mem_release.result(memory), CUDA_SUCCESS);
  EXPECT_EQ(api().mem_release.result(memory), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Vmm, AccessIsRequiredAndReleasedMemoryStaysMapped) {
  const auto memory = create(2 * kMiB);
  const CUdeviceptr at = reserve(2 * kMiB);
  const CUmemAccessDesc yes = access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUmemAccessDesc no = access(CU_MEM_ACCESS_FLAGS_PROT_NONE);
  const auto fill = [&] { return api().memset_d8_async.result(at, 7, 64, per_thread_stream()); };
  EXPECT_EQ(api().mem_set_access.result(at, 2 * kMiB, &yes, 1), CUDA_ERROR_INVALID_VALUE);
  api().mem_map(at, 2 * kMiB, 0, memory, 0);
  api().mem_release(memory);
  EXPECT_EQ(api().mem_map.result(at, 2 * kMiB, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(fill(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(at) = 1, "");
  const CUmemAccessDesc others = access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 1);
  api().mem_set_access(at, 2 * kMiB, &others, 1);
  EXPECT_EQ(fill(), CUDA_ERROR_INVALID_VALUE);
  api().mem_set_access(at, 2 * kMiB, &yes, 1);
  EXPECT_EQ(fill(), CUDA_SUCCESS);
  synchronize(per_thread_stream());
  EXPECT_EQ(*reinterpret_cast<char*>(at), 7);
  api().mem_set_access(at, 2 * kMiB, &no, 1);
  EXPECT_EQ(fill(), CUDA_ERROR_INVALID_VALUE);
  api().mem_unmap(at, 2 * kMiB);
  api().mem_address_free(at, 2 * kMiB);
}

TEST_F(Vmm, OnlyExportableMemoryIsExported) {
  CUmemAllocationProp wanted = properties();
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CUmemGenericAllocationHandle made = 0;
  api().mem_create(&made, 2 * kMiB, &wanted, 0);
  int file = -1;
  EXPECT_EQ(api().mem_export_to_shareable_handle.result(
                &file, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  const AllocationHandle handle(gpu.context, made);
  EXPECT_TRUE(says(error_of([&] { const ExportedHandle exported(handle, Sharing::descriptor); }),
                   "cuMemExportToShareableHandle: CUDA_ERROR_INVALID_VALUE"));
  const Fd other(::dup(STDERR_FILENO));
  CUmemGenericAllocationHandle imported = 0;
  EXPECT_EQ(api().mem_import_from_shareable_handle.result(
                &imported, reinterpret_cast<void*>(static_cast<intptr_t>(other.get())),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Vmm, SharedMemoryBelongsToADevice) {
  const SharedMemory memory(gpu.context, 1000);
  ASSERT_EQ(memory.exported().handle.sharing, Sharing::descriptor);
  EXPECT_TRUE(memory.handle());
  EXPECT_EQ(memory.size(), 2 * kMiB);
  EXPECT_EQ(describe(memory.data()).kind, MemoryKind::device);
  EXPECT_EQ(describe(memory.data()).device, 0);
  const Stream stream(gpu.context);
  fill_async(memory.data(), std::byte{3}, memory.size(), stream.handle());
  synchronize(stream.handle());
  EXPECT_EQ(std::to_integer<int>(memory.data()[memory.size() - 1]), 3);
}

TEST_F(Vmm, AnotherDeviceOfTheProcessGetsAccess) {
  const SharedMemory memory(gpu.context, 1000);
  const Context there(1);
  const CurrentContext current(there);
  const Stream stream(there);
  const auto fill = [&] { fill_async(memory.data(), std::byte{1}, 8, stream.handle()); };
  EXPECT_TRUE(says(error_of(fill), "CUDA_ERROR_INVALID_VALUE"));
  const ImportedMemory imported(there, memory.exported());
  EXPECT_EQ(imported.data(), memory.data());
  EXPECT_EQ(imported.size(), memory.size());
  EXPECT_EQ(error_of(fill).first, ErrorCode::ok);
  synchronize(stream.handle());
}

TEST_F(Vmm, ImportsTwiceInTheSameProcess) {
  const SharedMemory memory(gpu.context, 1000);
  const AllocationHandle handle = import_handle(gpu.context, memory.exported().handle);
  const Mapping mapping(gpu.context, handle, memory.size(), 0);
  EXPECT_NE(mapping.data(), memory.data());
  memory.data()[5] = std::byte{9};
  EXPECT_EQ(mapping.data()[5], std::byte{9});
}

TEST_F(Vmm, NothingIsLeftBehind) {
  std::optional<SharedMemory> warm(std::in_place, gpu.context, kMiB);
  warm.reset();
  const size_t descriptors = testing::open_descriptors();
  const size_t mapped = mappings();
  for (int turn = 0; turn < 500; ++turn) {
    const SharedMemory memory(gpu.context, 3 * kMiB);
    const AllocationHandle handle = import_handle(gpu.context, memory.exported().handle);
    const Mapping mapping(gpu.context, handle, memory.size(), 0);
    SharedMemory moved(gpu.context, kMiB);
    moved = SharedMemory(gpu.context, 2 * kMiB);
  }
  EXPECT_EQ(testing::open_descriptors(), descriptors);
  EXPECT_LT(mappings(), mapped + 100);  // allocators may have added mappings
}

TEST_F(Vmm, ExhaustionIsAnErrorAndLeavesNothingBehind) {
  const size_t descriptors = testing::open_descriptors();
  EXPECT_TRUE(says(error_of([&] { SharedMemory(gpu.context, size_t{1} << 40); }),
                   "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(testing::open_descriptors(), descriptors);
  // Succeeds because earlier tests have freed their memory.
  const SharedMemory all_of_it(gpu.context, size_t{63} << 30);
}

}  // namespace
}  // namespace tutti::cuda
