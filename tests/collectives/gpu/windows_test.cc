// Tests calls whose buffers are in windows, over the fake driver or a real one. Ranks are threads;
// each has its own device if there are enough devices.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "collectives/program/algorithm.h"
#include "tests/support/gpus.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using testing::run_ranks;

std::vector<int32_t> counting(size_t count, int32_t first) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// The GPU of a rank, with memory that the other ranks can access.
class WindowedGpu {
 public:
  WindowedGpu(Communicator& comm, size_t count)
      : WindowedGpu(comm, count, testing::gpu_of(comm.rank())) {}
  WindowedGpu(Communicator& comm, size_t count, int device)
      : context_(device),
        current_(context_),
        stream_(context_),
        memory_(Communicator::allocate_on_device<int32_t>(count)),
        window_(comm.register_window(memory_.get(), count * 4)) {}

  bool has_window() const { return window_ != nullptr; }
  CallOptions options(std::string_view algorithm = "auto") const {
    return {.algorithm = algorithm, .stream = {stream_.handle()}};
  }
  Buffer part(size_t first, size_t count) const {
    return {memory_.get() + first, count, DType::i32, MemorySpace::device};
  }
  void write(size_t first, const std::vector<int32_t>& values) {
    testing::copy_and_wait(memory_.get() + first, values.data(), values.size() * 4,
                           stream_.handle());
  }
  std::vector<int32_t> read(size_t first, size_t count) {
    std::vector<int32_t> values(count);
    testing::copy_and_wait(values.data(), memory_.get() + first, count * 4, stream_.handle());
    return values;
  }
  void wait() { cuda::synchronize(stream_.handle()); }

 private:
  const cuda::Context context_;
  const cuda::CurrentContext current_;
  const cuda::Stream stream_;
  const Memory<int32_t> memory_;
  const Registration window_;
};

class Windows : public ::testing::Test {
 protected:
  void SetUp() override { settings().set("TUTTI_GPU_PROTOCOL", "simple"); }
  void TearDown() override { settings().set("TUTTI_GPU_PROTOCOL", "auto"); }
};

// Runs every algorithm. Messages are lent where possible.
TEST_F(Windows, GiveTheResultsOfHostCalls) {
  constexpr Collective kCollectives[] = {Collective::all_reduce, Collective::reduce_scatter,
                                         Collective::all_gather, Collective::all_to_all};
  for (const int ranks : {2, 3, 5}) {
    run_ranks(ranks, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      const auto p = static_cast<size_t>(comm.size());
      constexpr size_t kCount = 1031;
      constexpr size_t kShift = 3;  // offset in the window, which makes the buffers unaligned
      WindowedGpu gpu(comm, kShift + 2 * p * kCount);
      EXPECT_TRUE(gpu.has_window());
      const std::vector<int32_t> mine = counting(p * kCount, 1000 * comm.rank());
      for (const Collective c : kCollectives) {
        const size_t in = has_input_blocks(c) ? p * kCount : kCount;
        const size_t out = has_output_blocks(c) ? p * kCount : kCount;
        std::vector<int32_t> host(out);
        const Request on_host{.collective = c,
                              .input = {mine.data(), in, DType::i32},
                              .output = {host.data(), out, DType::i32},
                              .op = ReduceOp::sum};
        comm.run(on_host);
        for (const bool in_place : {false, true}) {
          const auto own = static_cast<size_t>(comm.rank()) * kCount;
          const size_t input = kShift + (in_place && out > in ? own : 0);
          const size_t output = kShift + (!in_place ? p * kCount : in > out ? own : 0);
          for (const Algorithm* const algorithm : algorithms_for(c)) {
            if (!algorithm->supports({.ranks = comm.size()}).empty()) continue;
            gpu.write(input, {mine.begin(), mine.begin() + static_cast<ptrdiff_t>(in)});
            Request request = on_host;
            request.input = as_const(gpu.part(input, in));
            request.output = gpu.part(output, out);
            comm.run(request, gpu.options(algorithm->name));
            EXPECT_EQ(gpu.read(output, out), host)
                << name(c) << " by " << algorithm->name << (in_place ? " in place" : "");
          }
        }
      }
    });
  }
}

// Sums floats, because a switch can add them. The values make sums exact.
TEST_F(Windows, LeaveSumsToTheSwitch) {
  using Uses = size_t();
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  auto* const uses = reinterpret_cast<Uses*>(::dlsym(driver, "cuFakeMulticastUses"));
  if (uses == nullptr) GTEST_SKIP() << "a real driver does not count what the switch adds";
  if (cuda::device_count() < 4)
    GTEST_SKIP() << "ranks that share a GPU have no switch between them";
  run_ranks(4, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    constexpr size_t kCount = 20'003;
    constexpr size_t kApart = 20'032;  // aligned
    WindowedGpu gpu(comm, 2 * kApart);
    std::vector<float> values(kCount);
    std::iota(values.begin(), values.end(), static_cast<float>(comm.rank()));
    std::vector<int32_t> bits(kCount);
    std::memcpy(bits.data(), values.data(), kCount * 4);
    for (const bool in_place : {true, false}) {
      gpu.write(0, bits);
      Buffer input = gpu.part(0, kCount);
      Buffer output = gpu.part(in_place ? 0 : kApart, kCount);
      input.dtype = output.dtype = DType::f32;
      const size_t before = uses();
      comm.run(Request::all_reduce(as_const(input), output, ReduceOp::avg),
               gpu.options("two_shot"));
      const std::vector<int32_t> sums = gpu.read(in_place ? 0 : kApart, kCount);
      EXPECT_GT(uses(), before);
      std::memcpy(values.data(), sums.data(), kCount * 4);
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], static_cast<float>(i) + 1.5F) << i;
    }
  });
}

constexpr const char* kNoCopies = "copy engines are not for ranks that share a context";

// Runs no kernel, only copies between streams that signal each other.
TEST_F(Windows, CopyEnginesMoveBlocks) {
  if (testing::share_gpus(4)) GTEST_SKIP() << kNoCopies;
  settings().set("TUTTI_GPU_PROTOCOL", "engines");
  run_ranks(4, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    const auto p = static_cast<size_t>(comm.size());
    constexpr size_t kCount = 3001;
    constexpr int kRoot = 2;
    WindowedGpu gpu(comm, 2 * p * kCount);
    const auto own = [&](int rank, size_t count) { return counting(count, 100'000 * rank); };
    const Buffer outputs = gpu.part(p * kCount, p * kCount);
    const Buffer output = gpu.part(p * kCount, kCount);
    for (int turn = 0; turn < 5; ++turn) {
      gpu.write(0, own(comm.rank() + turn, p * kCount));
      comm.run(Request::all_gather(as_const(gpu.part(0, kCount)), outputs), gpu.options());
      for (int rank = 0; rank < comm.size(); ++rank) {
        EXPECT_EQ(gpu.read((p + static_cast<size_t>(rank)) * kCount, kCount),
                  own(rank + turn, kCount));
      }
      comm.run(Request::all_to_all(as_const(gpu.part(0, p * kCount)), outputs), gpu.options());
      comm.run(Request::scatter(as_const(gpu.part(0, p * kCount)), output, kRoot), gpu.options());
      const std::vector<int32_t> scattered = own(kRoot + turn, p * kCount);
      const auto begin = scattered.begin() + comm.rank() * static_cast<int>(kCount);
      EXPECT_EQ(gpu.read(p * kCount, kCount),
                std::vector<int32_t>(begin, begin + static_cast<int>(kCount)));
      comm.run(Request::gather(as_const(gpu.part(0, kCount)), outputs, kRoot), gpu.options());
      if (comm.rank() != kRoot) continue;
      for (int rank = 0; rank < comm.size(); ++rank) {
        EXPECT_EQ(gpu.read((p + static_cast<size_t>(rank)) * kCount, kCount),
                  own(rank + turn, kCount));
      }
    }
  });
}

// If ranks share a context, a rank's wait can block the hardware queue in front of the copy for
// which it waits.
TEST_F(Windows, CopyEnginesAreNotForRanksThatShareAContext) {
  settings().set("TUTTI_GPU_PROTOCOL", "engines");
  ::testing::internal::CaptureStderr();
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    WindowedGpu gpu(comm, 2000, 0);
    gpu.write(0, counting(500, 1000 * comm.rank()));
    comm.run(Request::all_gather(as_const(gpu.part(0, 500)), gpu.part(1000, 1000)), gpu.options());
    EXPECT_EQ(gpu.read(1500, 500), counting(500, 1000));
  });
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("calls use kernels"), std::string::npos);
}

// The call of rank 2 has another length, or another place in the window, or no window, so that it
// runs as a kernel. Each of these is an error on all ranks.
TEST_F(Windows, MismatchedCopiesAreReported) {
  if (testing::share_gpus(3)) GTEST_SKIP() << kNoCopies;
  settings().set("TUTTI_GPU_PROTOCOL", "engines");
  constexpr size_t kCount = 1000;
  struct Misfit {
    const char* what;
    size_t count;
    size_t shift;
    bool in_window;
  };
  for (const Misfit& misfit :
       {Misfit{"a length", 1100, 0, true}, Misfit{"a place", kCount, 64, true},
        Misfit{"no window", kCount, 0, false}}) {
    SCOPED_TRACE(misfit.what);
    std::barrier all_ended(3);  // memory is freed afterwards
    const auto errors = testing::run_ranks_catching(3, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      WindowedGpu gpu(comm, 6 * kCount);
      const cuda::DeviceMemory outside(cuda::Context(testing::gpu_of(comm.rank())), 12 * kCount);
      const bool fits = comm.rank() != 2;
      const size_t count = fits ? kCount : misfit.count;
      Buffer outputs = gpu.part(fits ? 0 : misfit.shift, 3 * count);
      if (!fits && !misfit.in_window) outputs.data = outside.data();
      const Buffer input = gpu.part(4 * kCount, count);
      comm.run(Request::all_gather(as_const(input), outputs), gpu.options());
      gpu.wait();
      all_ended.arrive_and_wait();
      for (;;) comm.barrier();  // until the abort arrives
    });
    for (const std::optional<Error>& error : errors) {
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    }
  }
}

TEST_F(Windows, AnAbortEndsCopiesThatWait) {
  if (testing::share_gpus(3)) GTEST_SKIP() << kNoCopies;
  settings().set("TUTTI_GPU_PROTOCOL", "engines");
  std::barrier all_ended(3);  // memory is freed afterwards
  run_ranks(3, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    WindowedGpu gpu(comm, 1000);
    const Buffer outputs = gpu.part(0, 900);
    const Buffer input = gpu.part(static_cast<size_t>(comm.rank()) * 300, 300);
    comm.run(Request::all_gather(as_const(input), outputs), gpu.options());
    gpu.wait();
    if (comm.rank() == 2) {
      comm.abort("this rank has had enough");
    } else {
      try {
        comm.run(Request::all_gather(as_const(input), outputs), gpu.options());
      } catch (const Error&) {  // the rank noticed the abort earlier
      }
    }
    gpu.wait();
    EXPECT_THROW(comm.barrier(), Error);
    all_ended.arrive_and_wait();
  });
}

TEST_F(Windows, DifferentPlacesInWindowsAreAMismatch) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    WindowedGpu gpu(comm, 40'000);
    const Buffer data = gpu.part(comm.rank() == 1 ? 64 : 0, 30'000);
    comm.run(Request::all_reduce(as_const(data), data, ReduceOp::sum), gpu.options("two_shot"));
    gpu.read(0, 1);  // the read completes
    while (!comm.failure()) std::this_thread::yield();
    EXPECT_EQ(comm.failure()->code(), ErrorCode::mismatch);
  });
}

TEST_F(Windows, AllRanksRefuseUnequalLengths) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    const cuda::Context context(testing::gpu_of(comm.rank()));
    const cuda::CurrentContext current(context);
    const auto memory = Communicator::allocate_on_device<int32_t>(100);
    EXPECT_THROW((void)comm.register_window(memory.get(), comm.rank() == 2 ? 396 : 400), Error);
    EXPECT_NE(comm.register_window(memory.get(), 400), nullptr);
    std::vector<int32_t> host(100);
    EXPECT_THROW((void)comm.register_window(host.data(), 400), Error);
  });
}

}  // namespace
}  // namespace tutti
