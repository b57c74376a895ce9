// Tests multicast objects within one process: the rules of the calls, and the members that device
// code finds. Ranks are threads. shared_processes_test.cc tests multicast between processes.
#include "base/cuda/multicast.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <optional>
#include <thread>
#include <vector>

#include "base/cuda/api.h"
#include "tests/base/cuda/harness.h"
#include "tests/base/cuda/members.h"

namespace tutti::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

void bind(Multicast& object, const SharedMemory& memory) {
  object.bind(memory.handle(), memory.size());
}

TEST(Multicast, RefersToTheMemoryOfAllRanks) {
  constexpr int kRanks = 3;
  std::barrier<> barrier(kRanks);
  ExportedMulticast exported;
  std::array<std::byte*, kRanks> own{};
  const auto run = [&](int rank) {
    const Context context(rank);
    std::optional<Multicast> object;
    if (rank == 0) {
      object.emplace(context, kRanks, 3 * kMiB);
      exported = object->exported();
    }
    barrier.arrive_and_wait();
    if (rank != 0) object.emplace(context, exported);
    EXPECT_EQ(object->size(), 4 * kMiB);
    std::optional<SharedMemory> memory(std::in_place, context, object->size());
    own[static_cast<size_t>(rank)] = memory->data();
    barrier.arrive_and_wait();  // all ranks have added their device
    bind(*object, *memory);
    barrier.arrive_and_wait();  // all ranks have bound their memory
    const std::vector<char*> members = members_of(object->data() + 100, 4 * kMiB - 100);
    ASSERT_EQ(members.size(), static_cast<size_t>(kRanks));
    for (size_t i = 0; i < members.size(); ++i) {
      EXPECT_EQ(members[i], reinterpret_cast<char*>(own[i] + 100));
    }
    // Beyond the end of the object.
    EXPECT_TRUE(members_of(object->data() + 100, 4 * kMiB).empty());
    EXPECT_TRUE(members_of(memory->data()).empty());
    barrier.arrive_and_wait();
    object.reset();
    barrier.arrive_and_wait();
    EXPECT_EQ(describe(memory->data()).kind, MemoryKind::device);
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(run, rank);
  for (std::thread& rank : ranks) rank.join();
}

struct Alone : ::testing::Test {
  Gpu gpu;
  Multicast object{gpu.context, 1, kMiB};
  SharedMemory memory{gpu.context, object.size()};
};

TEST_F(Alone, HasNoMembersUntilBoundAndIsNotTouched) {
  bind(object, memory);
  EXPECT_EQ(members_of(object.data()).size(), 1u);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(object.data()) = 1, "");
  const Stream stream(gpu.context);
  EXPECT_TRUE(says(error_of([&] { fill_async(object.data(), std::byte{0}, 8, stream.handle()); }),
                   "CUDA_ERROR_INVALID_VALUE"));
}

TEST_F(Alone, MemoryMustBeLargeEnoughAndMadeForIt) {
  const auto small = error_of([&] { bind(object, SharedMemory(gpu.context, kMiB)); });
  EXPECT_EQ(small.first, ErrorCode::invalid_argument);
  EXPECT_TRUE(says(small, "4194304"));
  EXPECT_EQ(error_of([&] { bind(object, memory); }).first, ErrorCode::ok);
  // It is bound already.
  EXPECT_EQ(error_of([&] { bind(object, memory); }).first, ErrorCode::system);
}

TEST_F(Alone, MemoryIsOfADeviceOfTheTeam) {
  const SharedMemory other(Context(1), object.size());
  EXPECT_TRUE(says(error_of([&] { bind(object, other); }), "CUDA_ERROR_INVALID_DEVICE"));
}

TEST_F(Alone, CanBeMadeAgainAndAgain) {
  for (int turn = 0; turn < 100; ++turn) {
    Multicast another(gpu.context, 1, kMiB);
    bind(another, memory);
    EXPECT_EQ(members_of(another.data()), std::vector{reinterpret_cast<char*>(memory.data())});
  }
}

TEST(MulticastTeam, TeamIsCompleteBeforeAnyoneBindsAndTakesNoMore) {
  const Context first(0);
  const Context second(1);
  Multicast object(first, 2, kMiB);
  const SharedMemory memory(first, object.size());
  EXPECT_TRUE(says(error_of([&] { bind(object, memory); }), "CUDA_ERROR_ILLEGAL_STATE"));
  EXPECT_TRUE(says(error_of([&] { Multicast(first, object.exported()); }),
                   "cuMulticastAddDevice: CUDA_ERROR_INVALID_VALUE"));  // added twice
  const Multicast theirs(second, object.exported());
  EXPECT_TRUE(says(error_of([&] { Multicast(Context(2), object.exported()); }),
                   "cuMulticastAddDevice: CUDA_ERROR_INVALID_VALUE"));  // one device too many
  bind(object, memory);
  EXPECT_TRUE(members_of(object.data()).empty());  // the second device has bound no memory
}

TEST(MulticastCalls, ChecksCalls) {
  const Gpu gpu;
  CUmulticastObjectProp wanted{.numDevices = 1,
                               .size = 4 * kMiB,
                               .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .flags = 0};
  CUmemGenericAllocationHandle made = 0;
  const auto create = [&] { return multicast_api().create.result(&made, &wanted); };
  wanted.size = 2 * kMiB;  // smaller than the granularity
  EXPECT_EQ(create(), CUDA_ERROR_INVALID_VALUE);
  wanted.size = 4 * kMiB;
  wanted.numDevices = 0;
  EXPECT_EQ(create(), CUDA_ERROR_INVALID_VALUE);
  wanted.numDevices = 1;
  ASSERT_EQ(create(), CUDA_SUCCESS);
  const AllocationHandle object(gpu.context, made);
  const SharedMemory memory(gpu.context, 8 * kMiB);
  multicast_api().add_device(made, 0);
  const auto bind = [&](size_t offset, size_t memory_offset, size_t size) {
    return multicast_api().bind_mem.result(made, offset, memory.handle().get(), memory_offset, size,
                                           0);
  };
  EXPECT_EQ(bind(0, 2 * kMiB, 4 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(bind(0, 0, 8 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(bind(0, 4 * kMiB, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(multicast_api().unbind.result(made, 1, 0, 4 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(multicast_api().unbind.result(made, 0, 0, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(multicast_api().add_device.result(memory.handle().get(), 0), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tutti::cuda
