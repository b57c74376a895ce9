// Tests watchdogs that abort and destroy NCCL communicators while other threads are in calls on
// them, as PyTorch's does. Ranks are threads of this process, on a driver without GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <latch>
#include <thread>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "bindings/nccl/abi.h"

namespace tutti {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr size_t kCount = 64;

#define EXPECT_SUCCESS(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

class Gpu {
 public:
  explicit Gpu(int device)
      : context_(device), stream_(context_), memory_(context_, kCount * sizeof(int32_t)) {}
  const cuda::Context& context() const { return context_; }

  ncclResult_t all_reduce(ncclComm_t comm) const {
    return ncclAllReduce(memory_.data(), memory_.data(), kCount, ncclInt32, ncclSum, comm,
                         stream_.handle());
  }

 private:
  cuda::Context context_;
  cuda::Stream stream_;
  cuda::DeviceMemory memory_;
};

// The communicators of all ranks in one process.
struct Comms {
  Comms() { EXPECT_SUCCESS(ncclCommInitAll(comms, kRanks, nullptr)); }
  ncclComm_t comms[kRanks] = {};
};

// Each rank has concurrent calls, queries, aborts and destructions. Each call must end with success
// or an error, and the communicator is destroyed once. The sanitizers detect uses after that.
TEST(NcclThreads, ConcurrentCallsAbortsAndDestructionsEnd) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const Comms all;
    std::latch begin(4 * kRanks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      const ncclComm_t comm = all.comms[rank];
      threads.emplace_back([comm, rank, &begin] {
        const Gpu gpu(rank);
        const cuda::CurrentContext current(gpu.context());
        begin.arrive_and_wait();
        while (gpu.all_reduce(comm) == ncclSuccess) {
        }
      });
      threads.emplace_back([comm, rank, &begin] {
        begin.arrive_and_wait();
        ncclResult_t error = ncclSuccess;
        while (ncclCommGetAsyncError(comm, &error) == ncclSuccess && error == ncclSuccess) {
          int own = -1;
          const ncclResult_t result = ncclCommUserRank(comm, &own);
          EXPECT_TRUE(own == rank || result == ncclInvalidArgument);
        }
      });
      for (const bool aborts : {true, false}) {
        threads.emplace_back([comm, aborts, &begin] {
          begin.arrive_and_wait();
          const ncclResult_t result = aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm);
          EXPECT_THAT(result, AnyOf(ncclSuccess, ncclInvalidArgument));
        });
      }
    }
    threads.clear();
    for (const ncclComm_t comm : all.comms) {
      int count = 0;
      EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument) << "it has ended";
    }
  }
}

// The call waits for the other rank, which never calls.
TEST(NcclThreads, AnAbortEndsACallThatWaitsForAnotherRank) {
  const Comms all;
  std::latch calls(1);
  std::jthread caller([&] {
    const Gpu gpu(0);
    const cuda::CurrentContext current(gpu.context());
    calls.count_down();
    while (gpu.all_reduce(all.comms[0]) == ncclSuccess) {
    }
  });
  calls.wait();
  EXPECT_SUCCESS(ncclCommAbort(all.comms[0]));
  caller.join();
  EXPECT_SUCCESS(ncclCommAbort(all.comms[1]));
}

// Another thread aborts the communicator before the group's end makes its calls.
TEST(NcclThreads, AbortedGroupKeepsTheObjectsThatItUses) {
  const Comms all;
  const Gpu gpu(0);
  const cuda::CurrentContext current(gpu.context());
  EXPECT_SUCCESS(ncclGroupStart());
  EXPECT_SUCCESS(gpu.all_reduce(all.comms[0]));
  std::jthread watchdog([&] { EXPECT_SUCCESS(ncclCommAbort(all.comms[0])); });
  ncclResult_t error = ncclSuccess;
  while (ncclCommGetAsyncError(all.comms[0], &error) == ncclSuccess && error == ncclSuccess) {
    std::this_thread::yield();
  }
  EXPECT_NE(ncclGroupEnd(), ncclSuccess);
  watchdog.join();
  EXPECT_SUCCESS(ncclCommAbort(all.comms[1]));
}

TEST(NcclThreads, CallOnAnEndedCommunicatorIsRefused) {
  const Comms all;
  for (const ncclComm_t comm : all.comms) EXPECT_SUCCESS(ncclCommDestroy(comm));
  int count = 0;
  EXPECT_EQ(ncclCommCount(all.comms[0], &count), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("ncclCommDestroy or ncclCommAbort"));
  EXPECT_EQ(ncclCommFinalize(all.comms[0]), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(all.comms[0]), ncclInvalidArgument);
}

// The communicator is destroyed before the group's calls are made.
TEST(NcclThreads, AGroupDestroysAtItsEnd) {
  const Comms all;
  const Gpu first(0);
  const Gpu second(1);
  EXPECT_SUCCESS(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) {
    const Gpu& gpu = rank == 0 ? first : second;
    const cuda::CurrentContext current(gpu.context());
    EXPECT_SUCCESS(gpu.all_reduce(all.comms[rank]));
    EXPECT_SUCCESS(ncclCommDestroy(all.comms[rank]));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  int count = 0;
  EXPECT_EQ(ncclCommCount(all.comms[0], &count), ncclInvalidArgument);
}

}  // namespace
}  // namespace tutti
