// Tests calls of a Communicator on GPU memory, over the fake driver or a real one. Ranks are
// threads; each has its own device if there are enough devices.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "collectives/group.h"
#include "tests/support/gpus.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using testing::run_ranks;

// The device and stream of a rank, with integers in device memory.
class Gpu {
 public:
  Gpu(int rank, size_t count)
      : context_(testing::gpu_of(rank)),
        current_(context_),
        stream_(context_),
        memory_(context_, count * 4) {}

  CallOptions options(std::string_view algorithm = "auto") const {
    return {.algorithm = algorithm, .stream = {stream_.handle()}};
  }
  Buffer part(size_t first, size_t count) const {
    return {memory_.data() + first * 4, count, DType::i32, MemorySpace::device};
  }
  void write(size_t first, const std::vector<int32_t>& values) {
    const cuda::CurrentContext current(context_);
    testing::copy_and_wait(memory_.data() + first * 4, values.data(), values.size() * 4,
                           stream_.handle());
  }
  std::vector<int32_t> read(size_t first, size_t count) {
    const cuda::CurrentContext current(context_);
    std::vector<int32_t> values(count);
    testing::copy_and_wait(values.data(), memory_.data() + first * 4, count * 4, stream_.handle());
    return values;
  }
  void wait() { cuda::synchronize(stream_.handle()); }

 private:
  const cuda::Context context_;
  const cuda::CurrentContext current_;
  const cuda::Stream stream_;
  const cuda::DeviceMemory memory_;
};

std::vector<int32_t> counting(size_t count, int32_t first) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// The parameter is the protocol: kernels (auto), or staging through host memory.
class DeviceCallsBy : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_GPU_PROTOCOL", GetParam()); }
  void TearDown() override { settings().set("TUTTI_GPU_PROTOCOL", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(All, DeviceCallsBy, ::testing::Values("auto", "staged"),
                         [](const auto& info) { return info.param; });

TEST_P(DeviceCallsBy, GiveTheResultsOfHostCalls) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_ranks(ranks, [](const Job& job) {
      Communicator comm = Communicator::init(job);
      const auto p = static_cast<size_t>(comm.size());
      constexpr size_t kCount = 301;
      Gpu gpu(comm.rank(), 2 * p * kCount);
      const Buffer input = gpu.part(0, kCount);
      const Buffer inputs = gpu.part(0, p * kCount);
      const Buffer output = gpu.part(p * kCount, kCount);
      const Buffer outputs = gpu.part(p * kCount, p * kCount);
      const std::vector<int32_t> mine = counting(p * kCount, 1000 * comm.rank());
      gpu.write(0, mine);
      const auto expect = [&](const Request& on_device, const Request& on_host, size_t count,
                              const std::vector<int32_t>& host) {
        comm.run(on_device, gpu.options());
        comm.run(on_host);
        EXPECT_EQ(gpu.read(p * kCount, count), host) << name(on_host.collective);
      };
      std::vector<int32_t> host(kCount);
      std::vector<int32_t> all(p * kCount);
      const ConstBuffer host_in{mine.data(), kCount, DType::i32};
      const ConstBuffer host_ins{mine.data(), p * kCount, DType::i32};
      const Buffer host_out{host.data(), kCount, DType::i32};
      const Buffer host_outs{all.data(), p * kCount, DType::i32};
      const auto as_in = [](const Buffer& buffer) { return as_const(buffer); };
      expect(Request::all_reduce(as_in(input), output, ReduceOp::sum),
             Request::all_reduce(host_in, host_out, ReduceOp::sum), kCount, host);
      expect(Request::reduce_scatter(as_in(inputs), output, ReduceOp::max),
             Request::reduce_scatter(host_ins, host_out, ReduceOp::max), kCount, host);
      expect(Request::all_gather(as_in(input), outputs), Request::all_gather(host_in, host_outs),
             p * kCount, all);
      expect(Request::all_to_all(as_in(inputs), outputs), Request::all_to_all(host_ins, host_outs),
             p * kCount, all);
      expect(Request::scan(as_in(input), output, ReduceOp::sum),
             Request::scan(host_in, host_out, ReduceOp::sum), kCount, host);
      const int root = comm.size() - 1;
      expect(Request::broadcast(as_in(input), output, root),
             Request::broadcast(host_in, host_out, root), kCount, host);
      expect(Request::scatter(as_in(inputs), output, root),
             Request::scatter(host_ins, host_out, root), kCount, host);
    });
  }
}

TEST_P(DeviceCallsBy, AnAbortEndsCallsThatWait) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Gpu gpu(comm.rank(), 64);
    const Buffer data = gpu.part(0, 64);
    gpu.write(0, counting(64, 0));
    comm.run(Request::all_reduce(as_const(data), data, ReduceOp::sum), gpu.options());
    gpu.wait();
    if (comm.rank() == 2) {
      comm.abort("this rank has had enough");
    } else {
      try {
        comm.run(Request::all_reduce(as_const(data), data, ReduceOp::sum), gpu.options());
      } catch (const Error&) {  // the rank noticed the abort earlier
      }
    }
    gpu.wait();
    EXPECT_THROW(comm.barrier(), Error);
  });
}

// The cases include a message by lines that is shorter than expected, and calls with different
// protocols.
TEST_P(DeviceCallsBy, MismatchedCallsAreReported) {
  for (const size_t other : {63, 8000, 500'000}) {
    const auto errors = testing::run_ranks_catching(3, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      Gpu gpu(comm.rank(), std::max<size_t>(64, other));
      const Buffer data = gpu.part(0, comm.rank() == 1 ? other : 64);
      comm.run(Request::all_reduce(as_const(data), data, ReduceOp::sum), gpu.options("ring"));
      gpu.wait();
      for (;;) comm.barrier();  // until the abort arrives
    });
    for (const std::optional<Error>& error : errors) {
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    }
  }
}

// Blocks have different lengths, with gaps between them that must not be modified.
TEST_P(DeviceCallsBy, LeaveGapsAlone) {
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, [](const Job& job) {
      Communicator comm = Communicator::init(job);
      const auto p = static_cast<uint64_t>(comm.size());
      Blocks blocks;
      for (uint64_t r = 0; r < p; ++r) {
        blocks.counts.push_back(2 * r + 1);
        blocks.displacements.push_back(10 * r + 3);
      }
      const uint64_t mine = blocks.counts[static_cast<size_t>(comm.rank())];
      Gpu gpu(comm.rank(), 100);
      gpu.write(0, counting(100, -100));
      gpu.write(90, counting(mine, 7 * comm.rank()));
      std::vector<int32_t> expected = counting(10 * p, -100);
      for (uint64_t r = 0; r < p; ++r) {
        std::iota(expected.begin() + static_cast<ptrdiff_t>(blocks.displacements[r]),
                  expected.begin() + static_cast<ptrdiff_t>(blocks.displacements[r] + 2 * r + 1),
                  static_cast<int32_t>(7 * r));
      }
      comm.run(Request::all_gatherv(as_const(gpu.part(90, mine)), gpu.part(0, 10 * p), blocks),
               gpu.options());
      EXPECT_EQ(gpu.read(0, 10 * p), expected);
    });
  }
}

TEST_P(DeviceCallsBy, SupportUserOperatorsAndFactors) {
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, [ranks](const Job& job) {
      Communicator comm = Communicator::init(job);
      Gpu gpu(comm.rank(), 60);
      gpu.write(0, counting(60, 2 * comm.rank() + 1));
      const auto odd = std::make_shared<const UserOp>(
          UserOp{[](void* dst, const void* a, const void* b, uint64_t count, DType) {
            for (uint64_t i = 0; i < count; ++i) {
              static_cast<int32_t*>(dst)[i] =
                  static_cast<const int32_t*>(a)[i] + static_cast<const int32_t*>(b)[i] + 1000;
            }
          }});
      const Buffer in = gpu.part(0, 30);
      const Buffer out = gpu.part(30, 30);
      comm.run(Request::all_reduce(as_const(in), out, Reduction::user(odd)), gpu.options());
      std::vector<int32_t> expected(30);
      for (int i = 0; i < 30; ++i) expected[i] = ranks * (i + ranks) + 1000 * (ranks - 1);
      EXPECT_EQ(gpu.read(30, 30), expected);
      comm.run(Request::all_reduce(as_const(in), out, Reduction::premul_sum(comm.rank() + 2)),
               gpu.options());
      for (int i = 0; i < 30; ++i) {
        expected[i] = 0;
        for (int r = 0; r < ranks; ++r) expected[i] += (r + 2) * (i + 2 * r + 1);
      }
      EXPECT_EQ(gpu.read(30, 30), expected);
    });
  }
}

// The buffers are longer than one slice of the staging protocol.
TEST_P(DeviceCallsBy, RunOnLongBuffers) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    constexpr size_t kCount = 3'333'333;
    Gpu gpu(comm.rank(), kCount);
    const Buffer data = gpu.part(0, kCount);
    std::vector<int32_t> expected = counting(kCount, 1);
    gpu.write(0, expected);
    for (int turn = 0; turn < 2; ++turn) {
      comm.run(Request::all_reduce(as_const(data), data, ReduceOp::sum), gpu.options());
    }
    for (int32_t& value : expected) value *= 4;
    EXPECT_EQ(gpu.read(0, kCount), expected);
    const int root = 1;
    const ConstBuffer input = comm.rank() == root ? as_const(data) : ConstBuffer{};
    if (comm.rank() != root) gpu.write(0, counting(kCount, 9));
    comm.run(Request::broadcast(input, data, root), gpu.options());
    EXPECT_EQ(gpu.read(0, kCount), expected);
  });
}

// Calls run in streams that wait for each other. The output of each call is the input of the next
// one.
TEST_P(DeviceCallsBy, FollowEachOther) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    const cuda::Context context(testing::gpu_of(comm.rank()));
    Gpu gpu(comm.rank(), 1000);
    const cuda::Stream other(context);
    gpu.write(0, counting(1000, 1));
    const Buffer data = gpu.part(0, 1000);
    for (int i = 0; i < 6; ++i) {
      const CallOptions options =
          i % 2 == 0 ? gpu.options() : CallOptions{.stream = {other.handle()}};
      comm.run(Request::all_reduce(as_const(data), data, ReduceOp::sum), options);
    }
    cuda::synchronize(other.handle());
    std::vector<int32_t> expected = counting(1000, 1);
    for (int32_t& value : expected) value *= 729;
    EXPECT_EQ(gpu.read(0, 1000), expected);
  });
}

// The captured calls are the first calls of the communicator, or follow an earlier call.
TEST_P(DeviceCallsBy, AGraphIsReplayed) {
  for (const bool made_before : {false, true}) {
    run_ranks(2, [made_before](const Job& job) {
      Communicator comm = Communicator::init(job);
      const cuda::Context context(testing::gpu_of(comm.rank()));
      Gpu gpu(comm.rank(), 100);
      gpu.write(0, counting(100, 1));
      const Buffer data = gpu.part(0, 100);
      const Request request = Request::all_reduce(as_const(data), data, ReduceOp::sum);
      auto* const stream = static_cast<cuda::CUstream>(gpu.options().stream.handle);
      if (made_before) comm.run(request, gpu.options());
      cuda::Capture capture(context, stream);
      comm.run(request, gpu.options());
      comm.run(request, gpu.options());
      const cuda::Graph graph = capture.end();
      for (int i = 0; i < 5; ++i) graph.launch(stream);
      std::vector<int32_t> expected = counting(100, 1);
      for (int32_t& value : expected) value *= made_before ? 2048 : 1024;
      EXPECT_EQ(gpu.read(0, 100), expected);
    });
  }
}

// Kernels must run in the order of the calls. Otherwise ranks would wait for each other forever.
TEST_P(DeviceCallsBy, TwoCommunicatorsShareAGroupAndStream) {
  run_ranks(2, [](const Job& job) {
    Communicator first = Communicator::init(job);
    Communicator second = first.split(0, -first.rank());
    Gpu gpu(first.rank(), 200);
    if (testing::share_gpus(2)) {  // after the first calls, so that their allocations are made
      for (Communicator* const comm : {&first, &second}) {
        const Buffer data = gpu.part(0, 100);
        comm->run(Request::all_reduce(as_const(data), data, ReduceOp::sum), gpu.options());
        gpu.wait();
      }
    }
    gpu.write(0, counting(200, 1));
    for (int i = 0; i < 10; ++i) {
      Group group;
      for (Communicator* const comm : {&first, &second}) {
        const Buffer data = gpu.part(comm == &first ? 0 : 100, 100);
        comm->run(Request::all_reduce(as_const(data), data, ReduceOp::sum), gpu.options());
      }
      group.end();
    }
    std::vector<int32_t> expected = counting(200, 1);
    for (int32_t& value : expected) value *= 1024;
    EXPECT_EQ(gpu.read(0, 200), expected);
  });
}

TEST(DeviceCalls, SendsBetweenMemoryOfAllKinds) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    constexpr size_t kCount = 50'000;  // too long to be sent before the receiver has called
    Gpu gpu(comm.rank(), 2 * kCount);
    gpu.write(0, counting(kCount, comm.rank()));
    const int next = (comm.rank() + 1) % 3;
    const int previous = (comm.rank() + 2) % 3;
    for (int i = 0; i < 3; ++i) {  // all ranks send first
      comm.run(Request::send(as_const(gpu.part(0, kCount)), next), gpu.options());
      comm.run(Request::recv(gpu.part(kCount, kCount), previous), gpu.options());
    }
    EXPECT_EQ(gpu.read(kCount, kCount), counting(kCount, previous));
    {
      Group group;  // all ranks receive first
      comm.recv(gpu.part(kCount, kCount), next, gpu.options());
      comm.start(Request::send(as_const(gpu.part(0, kCount)), previous), gpu.options());
      group.end();
    }
    EXPECT_EQ(gpu.read(kCount, kCount), counting(kCount, next));
    // The message is sent from host memory, has a tag, and is shorter than the buffer. The receive
    // accepts any source.
    std::vector<int32_t> host = counting(10, 77);
    CallOptions options = gpu.options();
    options.tag = 5;
    if (comm.rank() == 0) comm.run(Request::send({host.data(), 10, DType::i32}, 1), {.tag = 5});
    if (comm.rank() == 1) {
      options.may_be_shorter = true;
      gpu.write(0, counting(20, -20));
      comm.recv(gpu.part(0, 20), kAnySource, options);
      std::vector<int32_t> expected = counting(20, -20);
      std::ranges::copy(host, expected.begin());
      EXPECT_EQ(gpu.read(0, 20), expected);
    }
    comm.barrier();
  });
}

TEST(DeviceCalls, OneThreadRunsSeveralRanks) {
  constexpr int kRanks = 3;
  testing::LocalRendezvous rendezvous;
  std::vector<std::future<Communicator>> joining;
  for (int rank = 0; rank < kRanks; ++rank) {
    joining.push_back(Communicator::init_async(rendezvous.job(rank, kRanks)));
  }
  std::vector<Communicator> comms;
  std::vector<std::unique_ptr<Gpu>> gpus;
  for (int rank = 0; rank < kRanks; ++rank) {
    comms.push_back(joining[static_cast<size_t>(rank)].get());
    gpus.push_back(std::make_unique<Gpu>(rank, 100));
    gpus.back()->write(0, counting(100, rank));
  }
  for (int i = 0; i < 2; ++i) {
    Group group;
    for (size_t rank = 0; rank < comms.size(); ++rank) {
      const Buffer data = gpus[rank]->part(0, 100);
      comms[rank].run(Request::all_reduce(as_const(data), data, ReduceOp::sum),
                      gpus[rank]->options());
    }
    group.end();
  }
  for (const auto& gpu : gpus) {
    std::vector<int32_t> expected = counting(100, 1);
    for (int32_t& value : expected) value *= 9;
    EXPECT_EQ(gpu->read(0, 100), expected);
  }
  // All ranks leave concurrently, because a rank that leaves waits for other ranks.
  std::vector<std::jthread> leaving;
  for (Communicator& comm : comms) {
    leaving.emplace_back([own = std::move(comm)]() mutable { own = Communicator(); });
  }
}

// In a mixture of experts, the lengths of blocks differ in each step, which gives many kinds of
// calls. The device memory of the library must not grow with their number.
TEST(DeviceCalls, ManyKindsOfCallsNeedLittleMemory) {
  using Allocations = size_t();
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  auto* const allocations = reinterpret_cast<Allocations*>(::dlsym(driver, "cuFakeAllocations"));
  if (allocations == nullptr) GTEST_SKIP() << "a real driver does not count its allocations";
  constexpr size_t kKinds = 1000;
  run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    Gpu gpu(comm.rank(), 2 * kKinds);
    gpu.write(0, counting(2 * kKinds, 7));
    const auto run = [&](size_t count) {
      const std::vector<uint64_t> lengths{count, 1};
      const Buffer data = gpu.part(0, 2 * kKinds);
      const Blocks blocks = Blocks::of(lengths);
      const auto own = static_cast<size_t>(comm.rank());
      comm.run(Request::all_gatherv(as_const(gpu.part(own == 0 ? 0 : count, lengths[own])), data,
                                    blocks),
               gpu.options());
    };
    for (size_t kind = 1; kind < kKinds; ++kind) {
      run(kind);
      if (kind % 100 == 0) gpu.wait();
    }
    gpu.wait();
    EXPECT_LT(allocations(), 2 * kKinds * 3 / 4) << "of two ranks: as many as there were kinds";
    EXPECT_EQ(gpu.read(0, 2 * kKinds), counting(2 * kKinds, 7));
  });
}

TEST(DeviceCalls, MistakesAreRefused) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Gpu gpu(comm.rank(), 64);
    std::vector<int32_t> host(64);
    const Buffer data = gpu.part(0, 64);
    const Buffer no_device{host.data(), 64, DType::i32, MemorySpace::device};
    const Buffer on_host{host.data(), 64, DType::i32};
    const auto code_of = [&](const auto& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.code();
      }
      return ErrorCode::internal;
    };
    EXPECT_EQ(
        code_of([&] { comm.run(Request::all_reduce(as_const(data), on_host, ReduceOp::sum)); }),
        ErrorCode::unsupported);
    EXPECT_EQ(code_of([&] {
                comm.run(Request::all_reduce(as_const(no_device), no_device, ReduceOp::sum));
              }),
              ErrorCode::invalid_argument);
    EXPECT_EQ(
        code_of([&] { comm.prepare(Request::all_reduce(as_const(data), data, ReduceOp::sum)); }),
        ErrorCode::unsupported);
    comm.barrier();
  });
}

}  // namespace
}  // namespace tutti
