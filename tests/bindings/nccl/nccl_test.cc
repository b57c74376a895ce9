// Tests programs written for NCCL with this tree's libnccl.so.2 and a driver without GPUs. They are
// compiled with NCCL's header if it is installed, otherwise with ours.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "tests/support/gpus.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
constexpr const char* kHeader = "/usr/local/include/nccl.h";
#else
#include "bindings/nccl/abi.h"
constexpr const char* kHeader = "bindings/nccl/abi.h";
#endif

namespace tutti {
namespace {

using Ints = std::vector<int32_t>;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr size_t kCount = 300;

#define EXPECT_SUCCESS(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

// A rank's device with a stream, and two areas of kRanks * kCount integers.
class Gpu {
 public:
  explicit Gpu(int rank)
      : context_(testing::gpu_of(rank)),
        stream_(context_, Blocking{}),
        memory_(context_, 2 * kArea * 4) {}

  cudaStream_t stream() const { return stream_.handle; }
  int32_t* in() const { return reinterpret_cast<int32_t*>(memory_.data()); }
  int32_t* out() const { return in() + kArea; }
  const cuda::Context& context() const { return context_; }

  void write(const Ints& values) const {
    const cuda::CurrentContext current(context_);
    testing::copy_and_wait(in(), values.data(), values.size() * 4, stream());
  }
  Ints read(size_t count) const {
    const cuda::CurrentContext current(context_);
    Ints values(count);
    testing::copy_and_wait(values.data(), out(), count * 4, stream());
    return values;
  }

 private:
  static constexpr size_t kArea = kRanks * kCount;
  struct Blocking {};
  struct OwnStream {
    OwnStream(const cuda::Context& context, Blocking) : own(context), handle(own.handle()) {}
    cuda::Stream own;
    CUstream_st* handle;
  };
  cuda::Context context_;
  OwnStream stream_;
  cuda::DeviceMemory memory_;
};

Ints counting(size_t count, int32_t first) {
  Ints values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// One thread makes the calls of all ranks.
class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices[kRanks];
    for (int rank = 0; rank < kRanks; ++rank) devices[rank] = testing::gpu_of(rank);
    EXPECT_SUCCESS(ncclCommInitAll(comms_, kRanks, devices));
    for (int rank = 0; rank < kRanks; ++rank) {
      gpus_.push_back(std::make_unique<Gpu>(rank));
      gpus_.back()->write(counting(kRanks * kCount, 1000 * rank));
    }
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) EXPECT_SUCCESS(ncclCommDestroy(comm));
  }

  template <typename Call>
  void on_all(const Call& call) {
    EXPECT_SUCCESS(ncclGroupStart());
    for (int rank = 0; rank < kRanks; ++rank)
      EXPECT_SUCCESS(call(rank, *gpus_[rank], comms_[rank]));
    EXPECT_SUCCESS(ncclGroupEnd());
  }
  // Element i of rank r's input is 1000 r + i.
  template <typename Value>
  void expect(int rank, size_t count, const Value& value) {
    Ints expected(count);
    for (size_t i = 0; i < count; ++i)
      expected[i] = static_cast<int32_t>(value(static_cast<int>(i)));
    EXPECT_EQ(gpus_[rank]->read(count), expected) << "rank " << rank;
  }

  ncclComm_t comms_[kRanks] = {};
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

TEST_F(Nccl, ReportsCountRankAndDevice) {
  for (int i = 0; i < kRanks; ++i) {
    int count = 0, rank = -1, device = -1;
    EXPECT_SUCCESS(ncclCommCount(comms_[i], &count));
    EXPECT_SUCCESS(ncclCommUserRank(comms_[i], &rank));
    EXPECT_SUCCESS(ncclCommCuDevice(comms_[i], &device));
    EXPECT_EQ(count, kRanks);
    EXPECT_EQ(rank, i);
    EXPECT_EQ(device, testing::gpu_of(i));
  }
  int version = 0;
  EXPECT_SUCCESS(ncclGetVersion(&version));
  EXPECT_EQ(version, 22809);
}

TEST_F(Nccl, AllReducesWithEachOperator) {
  for (const ncclRedOp_t op : {ncclSum, ncclMax, ncclMin, ncclAvg}) {
    on_all([&](int, const Gpu& gpu, ncclComm_t comm) {
      return ncclAllReduce(gpu.in(), gpu.out(), kCount, ncclInt32, op, comm, gpu.stream());
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      expect(rank, kCount, [&](int i) {
        return op == ncclSum   ? 3000 + 3 * i
               : op == ncclMax ? 2000 + i
               : op == ncclMin ? i
                               : 1000 + i;
      });
    }
  }
}

TEST_F(Nccl, CollectivesMoveData) {
  on_all([&](int, const Gpu& gpu, ncclComm_t comm) {
    return ncclAllGather(gpu.in(), gpu.out(), kCount, ncclInt32, comm, gpu.stream());
  });
  const auto block = [](int i) { return i / static_cast<int>(kCount); };
  const auto within = [](int i) { return i % static_cast<int>(kCount); };
  for (int rank = 0; rank < kRanks; ++rank) {
    expect(rank, kRanks * kCount, [&](int i) { return 1000 * block(i) + within(i); });
  }
  on_all([&](int, const Gpu& gpu, ncclComm_t comm) {
    return ncclAlltoAll(gpu.in(), gpu.out(), kCount, ncclInt32, comm, gpu.stream());
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    expect(rank, kRanks * kCount,
           [&](int i) { return 1000 * block(i) + rank * static_cast<int>(kCount) + within(i); });
  }
  on_all([&](int, const Gpu& gpu, ncclComm_t comm) {
    return ncclBroadcast(gpu.in(), gpu.out(), kCount, ncclInt32, 2, comm, gpu.stream());
  });
  for (int rank = 0; rank < kRanks; ++rank) expect(rank, kCount, [](int i) { return 2000 + i; });
  on_all([&](int, const Gpu& gpu, ncclComm_t comm) {
    return ncclScatter(gpu.in(), gpu.out(), kCount, ncclInt32, 1, comm, gpu.stream());
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    expect(rank, kCount, [&](int i) { return 1000 + rank * static_cast<int>(kCount) + i; });
  }
  on_all([&](int rank, const Gpu& gpu, ncclComm_t comm) {
    return ncclGather(gpu.in(), rank == 1 ? gpu.out() : nullptr, kCount, ncclInt32, 1, comm,
                      gpu.stream());
  });
  expect(1, kRanks * kCount, [&](int i) { return 1000 * block(i) + within(i); });
}

TEST_F(Nccl, CollectivesReduceData) {
  on_all([&](int, const Gpu& gpu, ncclComm_t comm) {
    return ncclReduceScatter(gpu.in(), gpu.out(), kCount, ncclInt32, ncclSum, comm, gpu.stream());
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    expect(rank, kCount, [&](int i) { return 3000 + 3 * (rank * static_cast<int>(kCount) + i); });
  }
  on_all([&](int rank, const Gpu& gpu, ncclComm_t comm) {
    return ncclReduce(gpu.in(), rank == 2 ? gpu.out() : nullptr, kCount, ncclInt32, ncclMax, 2,
                      comm, gpu.stream());
  });
  expect(2, kCount, [](int i) { return 2000 + i; });
}

// The idiom of pipelines and all-to-alls: sends and receives of all ranks in one group.
TEST_F(Nccl, SendsMessagesInAGroup) {
  EXPECT_SUCCESS(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) {
    const Gpu& gpu = *gpus_[rank];
    EXPECT_SUCCESS(
        ncclRecv(gpu.out(), kCount, ncclInt32, (rank + 2) % kRanks, comms_[rank], gpu.stream()));
    EXPECT_SUCCESS(
        ncclSend(gpu.in(), kCount, ncclInt32, (rank + 1) % kRanks, comms_[rank], gpu.stream()));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  for (int rank = 0; rank < kRanks; ++rank) {
    expect(rank, kCount, [&](int i) { return 1000 * ((rank + 2) % kRanks) + i; });
  }
}

TEST_F(Nccl, AppliesFactorsBeforeTheSum) {
  ncclRedOp_t ops[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    const cuda::CurrentContext current(gpus_[rank]->context());
    int32_t factor = rank + 2;
    if (rank == 1) {  // on the device: element 3 of its input is 1003
      EXPECT_SUCCESS(ncclRedOpCreatePreMulSum(&ops[rank], gpus_[rank]->in() + 3, ncclInt32,
                                              ncclScalarDevice, comms_[rank]));
    } else {
      EXPECT_SUCCESS(ncclRedOpCreatePreMulSum(&ops[rank], &factor, ncclInt32,
                                              ncclScalarHostImmediate, comms_[rank]));
    }
  }
  on_all([&](int rank, const Gpu& gpu, ncclComm_t comm) {
    return ncclAllReduce(gpu.in(), gpu.out(), kCount, ncclInt32, ops[rank], comm, gpu.stream());
  });
  expect(0, kCount, [](int i) { return 2 * i + 1003 * (1000 + i) + 4 * (2000 + i); });
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_SUCCESS(ncclRedOpDestroy(ops[rank], comms_[rank]));
    EXPECT_EQ(ncclRedOpDestroy(ops[rank], comms_[rank]), ncclInvalidArgument);
  }
}

TEST_F(Nccl, FactorsMayHaveAnyFloatingPointType) {
  ncclRedOp_t op = ncclSum;
  const float f32 = 0.5f;
  const double f64 = 0.5;
  const uint16_t f16 = 0x3800, bf16 = 0x3f00;
  const std::pair<const void*, ncclDataType_t> factors[] = {
      {&f32, ncclFloat32}, {&f64, ncclFloat64}, {&f16, ncclFloat16}, {&bf16, ncclBfloat16}};
  for (const auto& [factor, type] : factors) {
    EXPECT_SUCCESS(ncclRedOpCreatePreMulSum(&op, const_cast<void*>(factor), type,
                                            ncclScalarHostImmediate, comms_[0]));
    EXPECT_SUCCESS(ncclRedOpDestroy(op, comms_[0]));
  }
}

// A factor is a double: a value that a double cannot hold is refused, not rounded.
TEST_F(Nccl, AFactorIsExactOrRefused) {
  ncclRedOp_t op = ncclSum;
  int64_t odd = (int64_t{1} << 53) + 1;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &odd, ncclInt64, ncclScalarHostImmediate, comms_[0]),
            ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("9007199254740993"));
  uint64_t largest = UINT64_MAX;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &largest, ncclUint64, ncclScalarHostImmediate, comms_[0]),
            ncclInvalidUsage);
  int64_t even = (int64_t{1} << 53) + 2;
  EXPECT_SUCCESS(
      ncclRedOpCreatePreMulSum(&op, &even, ncclInt64, ncclScalarHostImmediate, comms_[0]));
  EXPECT_SUCCESS(ncclRedOpDestroy(op, comms_[0]));
}

TEST_F(Nccl, SplitsACommunicator) {
  ncclComm_t parts[kRanks] = {};
  EXPECT_SUCCESS(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) {
    const int color = rank == 1 ? NCCL_SPLIT_NOCOLOR : 0;
    EXPECT_SUCCESS(ncclCommSplit(comms_[rank], color, -rank, &parts[rank], nullptr));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  EXPECT_EQ(parts[1], nullptr);
  int rank = -1;
  EXPECT_SUCCESS(ncclCommUserRank(parts[2], &rank));
  EXPECT_EQ(rank, 0) << "its key is the lower one";
  EXPECT_SUCCESS(ncclGroupStart());
  for (const int i : {0, 2}) {
    EXPECT_SUCCESS(ncclAllReduce(gpus_[i]->in(), gpus_[i]->out(), kCount, ncclInt32, ncclSum,
                                 parts[i], gpus_[i]->stream()));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  expect(0, kCount, [](int i) { return 2000 + 2 * i; });
  for (const int i : {0, 2}) EXPECT_SUCCESS(ncclCommDestroy(parts[i]));
}

// Communicators of a mesh's rows and columns in one group.
TEST_F(Nccl, SplitsSeveralTimesInAGroup) {
  ncclComm_t rows[kRanks] = {};
  ncclComm_t columns[kRanks] = {};
  EXPECT_SUCCESS(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_SUCCESS(ncclCommSplit(comms_[rank], rank / 2, rank, &rows[rank], nullptr));
    EXPECT_SUCCESS(ncclCommSplit(comms_[rank], rank % 2, rank, &columns[rank], nullptr));
  }
  EXPECT_SUCCESS(ncclGroupEnd());
  const int in_row[] = {2, 2, 1};
  const int in_column[] = {2, 1, 2};
  for (int rank = 0; rank < kRanks; ++rank) {
    int count = 0;
    EXPECT_SUCCESS(ncclCommCount(rows[rank], &count));
    EXPECT_EQ(count, in_row[rank]);
    EXPECT_SUCCESS(ncclCommCount(columns[rank], &count));
    EXPECT_EQ(count, in_column[rank]);
    EXPECT_SUCCESS(ncclCommDestroy(rows[rank]));
    EXPECT_SUCCESS(ncclCommDestroy(columns[rank]));
  }
}

TEST_F(Nccl, MissingGpuLeavesNoGroupOpen) {
  ncclComm_t comms[2] = {};
  const int devices[2] = {0, 99};
  EXPECT_NE(ncclCommInitAll(comms, 2, devices), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "there is no group";
}

TEST_F(Nccl, ErrorsDescribeTheMistake) {
  const Gpu& gpu = *gpus_[0];
  EXPECT_EQ(ncclAllReduce(gpu.in(), gpu.out(), 1, static_cast<ncclDataType_t>(99), ncclSum,
                          comms_[0], gpu.stream()),
            ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comms_[0]), HasSubstr("ncclDataType_t 99"));
  EXPECT_EQ(ncclBroadcast(gpu.in(), gpu.out(), 1, ncclInt8, kRanks, comms_[0], gpu.stream()),
            ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comms_[0]), HasSubstr("root 3"));
  EXPECT_EQ(ncclAllReduce(gpu.in(), gpu.out(), 1, ncclInt8, ncclSum, nullptr, gpu.stream()),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(ncclCommRevoke(comms_[0], 0), ncclInvalidUsage);
  ncclComm_t comm = nullptr;
  ncclUniqueId id{};
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("not created by this library"));
  EXPECT_STRNE(ncclGetErrorString(ncclRemoteError), ncclGetErrorString(ncclSuccess));
}

TEST_F(Nccl, AnAbortIsAnAsynchronousErrorElsewhere) {
  ncclResult_t error = ncclInternalError;
  EXPECT_SUCCESS(ncclCommGetAsyncError(comms_[0], &error));
  EXPECT_EQ(error, ncclSuccess);
  EXPECT_SUCCESS(ncclCommAbort(comms_[2]));
  comms_[2] = nullptr;
  while (error == ncclSuccess) EXPECT_SUCCESS(ncclCommGetAsyncError(comms_[0], &error));
  EXPECT_EQ(error, ncclRemoteError);
  EXPECT_EQ(ncclAllReduce(gpus_[0]->in(), gpus_[0]->out(), 1, ncclInt8, ncclSum, comms_[0],
                          gpus_[0]->stream()),
            ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(comms_[0]), HasSubstr("ncclCommAbort"));
}

TEST_F(Nccl, AllocatesMemory) {
  void* memory = nullptr;
  EXPECT_SUCCESS(ncclMemAlloc(&memory, 1000));
  EXPECT_EQ(cuda::describe(memory).kind, cuda::MemoryKind::device);
  void* handle = nullptr;
  EXPECT_SUCCESS(ncclCommRegister(comms_[0], memory, 1000, &handle));
  EXPECT_SUCCESS(ncclCommDeregister(comms_[0], handle));
  EXPECT_SUCCESS(ncclMemFree(memory));
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
}

TEST(NcclRanks, ThreadsCanShareAnId) {
  ncclUniqueId id;
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([rank, id] {
      const Gpu gpu(rank);
      const cuda::CurrentContext current(gpu.context());
      ncclComm_t comm = nullptr;
      EXPECT_SUCCESS(ncclCommInitRank(&comm, kRanks, id, rank));
      gpu.write(counting(kCount, rank));
      EXPECT_SUCCESS(
          ncclAllReduce(gpu.in(), gpu.out(), kCount, ncclInt32, ncclSum, comm, gpu.stream()));
      Ints expected = counting(kCount, 1);
      for (int32_t& value : expected) value *= kRanks;
      EXPECT_EQ(gpu.read(kCount), expected);
      EXPECT_SUCCESS(ncclCommFinalize(comm));
      EXPECT_SUCCESS(ncclCommDestroy(comm));
    });
  }
}

TEST(NcclRanks, SingleRankWorks) {
  ncclUniqueId id;
  EXPECT_SUCCESS(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_SUCCESS(ncclCommInitRank(&comm, 1, id, 0));
  const Gpu gpu(0);
  gpu.write(counting(kCount, 5));
  EXPECT_SUCCESS(
      ncclAllReduce(gpu.in(), gpu.out(), kCount, ncclInt32, ncclSum, comm, gpu.stream()));
  EXPECT_EQ(gpu.read(kCount), counting(kCount, 5));
  EXPECT_SUCCESS(ncclCommDestroy(comm));
}

// Programs linked with NCCL's own library must load.
TEST(NcclLibrary, HasEveryFunctionOfTheHeader) {
  std::ifstream file(kHeader);
  if (!file) GTEST_SKIP() << kHeader << " is not there";
  const std::regex function(R"(^(ncclResult_t|const char\*|void)\s+(nccl[A-Z]\w*)\s*\(.*)");
  std::set<std::string> names;
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, match, function)) names.insert(match[2]);
  }
  EXPECT_GT(names.size(), 35u);
  for (const std::string& name : names) {
    EXPECT_NE(::dlsym(RTLD_DEFAULT, name.c_str()), nullptr) << name;
    EXPECT_NE(::dlsym(RTLD_DEFAULT, ("p" + name).c_str()), nullptr) << "p" << name;
  }
}

}  // namespace
}  // namespace tutti
