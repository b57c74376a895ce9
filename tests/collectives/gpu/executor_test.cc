// Tests the executor over the fake driver (tests/support/fake_cuda) or a real one: everything from
// cuInit to cuLaunchKernel. Ranks are threads; each has its own device if there are enough devices.
#include "collectives/gpu/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/collectives/gpu/ready_call.h"
#include "tests/support/gpus.h"

namespace tutti {
namespace {

using gpu::DeviceCall;
using gpu::Executor;
using gpu::MailboxShape;
using gpu::Protocol;

constexpr int kRanks = 4;
constexpr MailboxShape kShape{.blocks = 2, .simple_bytes = 4096, .lines_data = 2048};

// An all-gather among the ranks of this process.
class Meeting {
 public:
  gpu::Exchange exchange(int rank) {
    return [this, rank](std::span<const std::byte> mine) {
      if (rank == 0) all_.resize(mine.size() * kRanks);
      meet();
      std::memcpy(all_.data() + mine.size() * static_cast<size_t>(rank), mine.data(), mine.size());
      meet();
      std::vector<std::byte> all = all_;
      meet();
      return all;
    };
  }
  void meet() { barrier_.arrive_and_wait(); }

 private:
  std::barrier<> barrier_{kRanks};
  std::vector<std::byte> all_;
};

// One rank, which runs all-reduces of integers in device memory in a stream.
class Rank {
 public:
  Rank(int rank, Meeting& meeting, uint64_t count, Protocol protocol, const char* algorithm)
      : rank_(rank),
        context_(testing::gpu_of(rank)),
        executor_(rank, kRanks, testing::gpu_of(rank), kShape),
        stream_(context_),
        data_(context_, count * sizeof(int32_t)),
        host_(count) {
    executor_.connect(meeting.exchange(rank));
    const Buffer buffer{data_.data(), count, DType::i32};
    const testing::ReadyCall ready(
        rank, kRanks, require_algorithm(Collective::all_reduce, algorithm),
        Request::all_reduce(as_const(buffer), buffer, ReduceOp::sum), kShape, protocol, 2);
    call_ = executor_.prepare(ready.lowered, ready.dtype);
    meeting.meet();  // all ranks have allocated their memory before a kernel waits for other ranks
  }

  void fill(int turn, cuda::CUstream stream) {
    std::iota(host_.begin(), host_.end(), 1 + rank_ * 1000 + turn);
    testing::copy_and_wait(data_.data(), host_.data(), host_.size() * sizeof(int32_t), stream);
  }
  void launch(cuda::CUstream stream) {
    executor_.launch(*call_, data_.data(), data_.data(), stream);
  }
  // Waits for the results. Returns true if all are right.
  bool is_right(int turn, cuda::CUstream stream) {
    testing::copy_and_wait(host_.data(), data_.data(), host_.size() * sizeof(int32_t), stream);
    for (size_t i = 0; i < host_.size(); ++i) {
      if (host_[i] != kRanks * (static_cast<int32_t>(i) + 1 + turn) + 6000) return false;
    }
    return true;
  }

  const std::byte* data() const { return data_.data(); }
  cuda::CUstream stream() const { return stream_.handle(); }
  const cuda::Context& context() const { return context_; }
  Executor& executor() { return executor_; }

 private:
  const int rank_;
  const cuda::Context context_;
  Executor executor_;
  const cuda::Stream stream_;
  const cuda::DeviceMemory data_;
  std::vector<int32_t> host_;
  std::shared_ptr<DeviceCall> call_;
};

template <typename Body>
void on_all_ranks(const Body& body) {
  Meeting meeting;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const cuda::Context context(testing::gpu_of(rank));
      const cuda::CurrentContext current(context);
      body(rank, meeting);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

class Executors : public ::testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(All, Executors, ::testing::Values(Protocol::simple, Protocol::lines),
                         [](const auto& info) {
                           return info.param == Protocol::simple ? "simple" : "lines";
                         });

TEST_P(Executors, CallsFollowEachOtherInAStream) {
  on_all_ranks([](int rank, Meeting& meeting) {
    Rank self(rank, meeting, 3001, GetParam(), "ring");
    for (int turn = 0; turn < 20; ++turn) {
      self.fill(turn, self.stream());
      self.launch(self.stream());
      EXPECT_TRUE(self.is_right(turn, self.stream()));
    }
    meeting.meet();  // all ranks have finished before memory is freed to which others write
  });
}

TEST_P(Executors, CallsFollowEachOtherAcrossStreams) {
  on_all_ranks([](int rank, Meeting& meeting) {
    const cuda::Stream other{cuda::Context(testing::gpu_of(rank))};
    Rank self(rank, meeting, 501, GetParam(), "halving_doubling");
    for (int turn = 0; turn < 10; ++turn) {
      // The second call, in another stream, uses the sums of the first call as inputs. Only the
      // executor orders the two calls.
      self.fill(turn, self.stream());
      self.launch(self.stream());
      self.launch(other.handle());
      std::vector<int32_t> sums(501);
      testing::copy_and_wait(sums.data(), self.data(), sums.size() * sizeof(int32_t),
                             other.handle());
      for (int32_t i = 0; i < 501; ++i) {
        EXPECT_EQ(sums[static_cast<size_t>(i)], kRanks * (kRanks * (i + 1 + turn) + 6000));
      }
    }
    meeting.meet();
  });
}

TEST_P(Executors, AGraphIsReplayedAgainAndAgain) {
  on_all_ranks([](int rank, Meeting& meeting) {
    Rank self(rank, meeting, 64, GetParam(), "recursive_doubling");
    const cuda::Stream captured(self.context());
    cuda::Capture capture(self.context(), captured.handle());
    self.launch(captured.handle());
    const cuda::Graph graph = capture.end();
    const int turns = GetParam() == Protocol::lines ? 1000 : 100;
    for (int turn = 0; turn < turns; ++turn) {
      self.fill(turn, captured.handle());
      graph.launch(captured.handle());
      ASSERT_TRUE(self.is_right(turn, captured.handle())) << turn;
    }
    meeting.meet();
  });
}

TEST_P(Executors, AStopEndsAKernelThatWaits) {
  on_all_ranks([](int rank, Meeting& meeting) {
    Rank self(rank, meeting, 3001, GetParam(), "ring");
    self.fill(0, self.stream());
    if (rank != 2) {  // one rank never calls
      self.launch(self.stream());
      EXPECT_FALSE(cuda::is_done(self.stream()));
    }
    meeting.meet();
    self.executor().stop();
    cuda::synchronize(self.stream());
    meeting.meet();
  });
}

TEST_P(Executors, MismatchedCallsAreReportedAndEnd) {
  std::atomic<int> told{0};
  on_all_ranks([&](int rank, Meeting& meeting) {
    Rank self(rank, meeting, rank == 1 ? 65 : 64, GetParam(), "recursive_doubling");
    self.fill(0, self.stream());
    self.launch(self.stream());
    while (!cuda::is_done(self.stream())) {
      if (self.executor().mismatch() != 0) break;
      if (told.load() > 0) self.executor().stop();  // as an abort would do
      std::this_thread::yield();
    }
    if (self.executor().mismatch() != 0) ++told;
    self.executor().stop();
    cuda::synchronize(self.stream());
    meeting.meet();
  });
  EXPECT_GT(told.load(), 0);
}

}  // namespace
}  // namespace tutti
