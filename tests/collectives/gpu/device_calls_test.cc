// Communicator's calls on memory of GPUs, over the driver for tests: ranks as threads, with a
// device each.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "tests/support/ranks.h"
#include "transport/cuda/device.h"
#include "transport/cuda/memory.h"
#include "transport/cuda/stream.h"

namespace tutti {
namespace {

using testing::run_ranks;

// A rank's device and stream, with integers in its memory.
class Gpu {
 public:
  Gpu(int device, size_t count)
      : context_(device), current_(context_), stream_(context_), memory_(context_, count * 4) {}

  CallOptions options(std::string_view algorithm = "auto") const {
    return {.algorithm = algorithm, .stream = {stream_.handle()}};
  }
  Buffer part(size_t first, size_t count) const {
    return {memory_.data() + first * 4, count, DType::i32, MemorySpace::device};
  }
  void write(size_t first, const std::vector<int32_t>& values) {
    cuda::copy_async(memory_.data() + first * 4, values.data(), values.size() * 4,
                     stream_.handle());
    wait();
  }
  std::vector<int32_t> read(size_t first, size_t count) {
    std::vector<int32_t> values(count);
    cuda::copy_async(values.data(), memory_.data() + first * 4, count * 4, stream_.handle());
    wait();
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

TEST(DeviceCalls, GiveWhatHostCallsGive) {
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

TEST(DeviceCalls, AnAbortEndsKernelsThatWait) {
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
      } catch (const Error&) {  // the abort came sooner
      }
    }
    gpu.wait();
    EXPECT_THROW(comm.barrier(), Error);
  });
}

TEST(DeviceCalls, CallsThatDoNotFitAreTold) {
  const auto errors = testing::run_ranks_catching(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Gpu gpu(comm.rank(), 64);
    const Buffer data = gpu.part(0, comm.rank() == 1 ? 63 : 64);
    gpu.write(0, counting(64, 0));
    comm.run(Request::all_reduce(as_const(data), data, ReduceOp::sum), gpu.options("ring"));
    gpu.wait();
    for (;;) comm.barrier();  // until the abort has come
  });
  for (const std::optional<Error>& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
  }
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
    EXPECT_EQ(code_of([&] { comm.run(Request::send(as_const(data), 1 - comm.rank())); }),
              ErrorCode::unsupported);
    EXPECT_EQ(
        code_of([&] { comm.prepare(Request::all_reduce(as_const(data), data, ReduceOp::sum)); }),
        ErrorCode::unsupported);
    comm.barrier();
  });
}

}  // namespace
}  // namespace tutti
