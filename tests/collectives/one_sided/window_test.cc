// Tests one-sided calls: the contents of windows, the order of requests, and calls that access dead
// ranks.
#include "collectives/one_sided/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/reduce.h"
#include "base/settings.h"
#include "bench/pattern.h"
#include "tests/support/fabrics.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using testing::run_ranks_catching;

// The parameter is how calls reach another rank: in shared memory, by messages over a transport, or
// by remote memory access of a fabric ("ucx_rma", "ofi_rma"). Only memory that the window has
// allocated supports the latter.
class Windows : public ::testing::TestWithParam<std::string> {
 protected:
  Windows() {
    if (!in_place()) settings().set("TUTTI_TRANSPORT", transport());
    if (by_rma()) settings().set("TUTTI_RMA", "on");
  }
  ~Windows() override {
    settings().set("TUTTI_TRANSPORT", "auto");
    settings().set("TUTTI_PROGRESS_THREAD", "0");
    settings().set("TUTTI_RMA", "auto");
  }
  void SetUp() override {
    const std::string problem = testing::lacks(in_place() ? "shm" : transport());
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
  static bool in_place() { return GetParam() == "in_place"; }
  static bool by_rma() { return GetParam().ends_with("_rma"); }
  static std::string transport() { return GetParam().substr(0, GetParam().find('_')); }

  // This rank's part and its window. The part is in memory that the ranks of the host share, in
  // plain memory, or in memory that the window has allocated.
  template <typename T>
  class Part : public std::span<T> {
   public:
    Part(Communicator& world, size_t count, T value = T(), Members members = Members::end_together)
        : plain_(in_place() || by_rma() ? 0 : count),
          shared_(in_place() ? world.allocate<T>(count) : nullptr),
          window(by_rma() ? Window::allocate(world, count * sizeof(T), members)
                          : Window(world,
                                   std::as_writable_bytes(std::span<T>(
                                       in_place() ? shared_.get() : plain_.data(), count)),
                                   members)) {
      static_cast<std::span<T>&>(*this) = {reinterpret_cast<T*>(window.memory().data()), count};
      std::ranges::fill(*this, value);
      world.barrier();  // no rank accesses the part before it is initialized
    }
    std::span<std::byte> bytes() const { return std::as_writable_bytes(std::span<T>(*this)); }
    std::vector<T> all() const { return {this->begin(), this->end()}; }

   private:
    std::vector<T> plain_;
    Memory<T> shared_;

   public:
    Window window;
  };
};

INSTANTIATE_TEST_SUITE_P(Ways, Windows,
                         ::testing::Values("in_place", "shm", "tcp", "ucx", "ofi", "ucx_rma",
                                           "ofi_rma"),
                         [](const auto& info) { return info.param; });

// Some sizes fit in one message, one is the limit, and others are larger; some are odd.
TEST_P(Windows, HoldTheDataThatWasPut) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_ranks(ranks, [&](const Job& job) {
      Communicator world = Communicator::init(job);
      constexpr uint64_t kEach = 100'000;
      Part<uint8_t> memory(world, kEach * static_cast<uint64_t>(ranks));
      Window& window = memory.window;
      EXPECT_EQ(window.rank(), job.rank);
      EXPECT_EQ(window.bytes_of(ranks - 1), memory.size());
      EXPECT_EQ(window.is_shared((job.rank + 1) % ranks), in_place() || ranks == 1);
      const std::vector<uint64_t> sizes = {0, 1, 7, Window::kSegment, Window::kSegment + 1, kEach};
      for (size_t round = 0; round < sizes.size(); ++round) {
        const uint64_t size = sizes[round];
        const auto value = static_cast<uint8_t>(10 * round + static_cast<size_t>(job.rank) + 1);
        const std::vector<uint8_t> own(size, value);
        const uint64_t offset = kEach * static_cast<uint64_t>(job.rank);
        for (int to = 0; to < ranks; ++to) window.put({own.data(), size, DType::u8}, to, offset);
        window.fence();
        for (int from = 0; from < ranks; ++from) {
          const auto wanted = static_cast<uint8_t>(10 * round + static_cast<size_t>(from) + 1);
          const auto* const part = memory.data() + kEach * static_cast<uint64_t>(from);
          for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(part[i], wanted) << size << ' ' << i;
          // Reads the same data from the part of the next rank.
          std::vector<uint8_t> read(size);
          window.get({read.data(), size, DType::u8}, (job.rank + 1) % ranks,
                     kEach * static_cast<uint64_t>(from));
          EXPECT_EQ(read, std::vector<uint8_t>(size, wanted));
        }
        window.fence();
      }
      window.free();
    });
  }
}

// Each element has one contributor, so that the result is one application of the kernel.
TEST_P(Windows, AccumulateEveryOperatorAndType) {
  constexpr int kRanks = 3;
  constexpr uint64_t kCount = 50;
  run_ranks(kRanks, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    for (const DType dtype : kAllDTypes) {
      Part<std::byte> memory(world, kCount * size_of(dtype));
      Window& window = memory.window;
      for (const ReduceOp op : kAllReduceOps) {
        const auto pattern = [&](int rank) {
          std::vector<std::byte> bytes(kCount * size_of(dtype));
          bench::fill_pattern(dtype, op, kRanks, rank, 0, kCount, bytes.data());
          return bytes;
        };
        std::vector<std::byte> wanted = pattern(job.rank);
        std::ranges::copy(wanted, memory.begin());
        window.fence();
        const std::vector<std::byte> own = pattern(job.rank);
        const ConstBuffer from{own.data(), kCount, dtype};
        const bool is_possible = supports(op, dtype) && op != ReduceOp::avg &&
                                 op != ReduceOp::premul_sum && op != ReduceOp::user;
        if (!is_possible) {
          EXPECT_THROW(window.accumulate(from, 0, 0, op), Error);
        } else {
          window.accumulate(from, (job.rank + 1) % kRanks, 0, op);
          const std::vector<std::byte> its = pattern((job.rank + 2) % kRanks);
          reduce_kernel(dtype, op)(wanted.data(), wanted.data(), its.data(), kCount, {});
        }
        window.fence();
        EXPECT_EQ(memory.all(), wanted) << name(dtype) << ' ' << name(op);
      }
      window.free();
    }
  });
}

TEST_P(Windows, SumsAreExact) {
  constexpr int kRanks = 4;
  run_ranks(kRanks, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Part<float> memory(world, 30'000, 1.0f);
    Window& window = memory.window;
    std::vector<float> own(memory.size() - 1);
    std::iota(own.begin(), own.end(), static_cast<float>(job.rank));
    constexpr int kTimes = 3;
    for (int time = 0; time < kTimes; ++time) {
      for (int to = 0; to < kRanks; ++to) {
        window.accumulate({own.data(), own.size(), DType::f32}, to, sizeof(float), ReduceOp::sum);
      }
    }
    window.fence();
    EXPECT_EQ(memory[0], 1);
    for (size_t i = 0; i < own.size(); ++i) {
      ASSERT_EQ(memory[i + 1], 1 + kTimes * (kRanks * static_cast<float>(i) + 6)) << i;
    }
    window.free();
  });
}

// Uses compare_and_swap as a lock, and reads and writes a counter under this lock.
TEST_P(Windows, SwapsAreALock) {
  constexpr int kRanks = 4;
  constexpr int kTimes = 25;
  run_ranks(kRanks, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Part<uint64_t> memory(world, 2);
    Window& window = memory.window;
    for (int time = 0; time < kTimes; ++time) {
      while (window.compare_and_swap(DType::u64, 0, 1 + static_cast<uint64_t>(job.rank), 0, 0) !=
             0) {
      }
      uint64_t count = 0;
      window.get({&count, 1, DType::u64}, 0, 8);
      ++count;
      window.put({&count, 1, DType::u64}, 0, 8);
      window.flush(0);
      const uint64_t mine = 1 + static_cast<uint64_t>(job.rank);
      EXPECT_EQ(window.compare_and_swap(DType::u64, mine, 0, 0, 0), mine);
    }
    window.fence();
    if (job.rank == 0) {
      EXPECT_EQ(memory[1], uint64_t{kRanks * kTimes});
    }
    EXPECT_THROW(window.compare_and_swap(DType::f32, 0, 1, 0, 0), Error);
    window.free();
  });
}

// Each rank updates a number in place under exclusion, while others accumulate into it.
TEST_P(Windows, ExclusiveUpdatesExcludeAccumulates) {
  constexpr int kRanks = 3;
  constexpr int kTimes = 200;
  run_ranks(kRanks, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Part<uint64_t> memory(world, 4);
    Window& window = memory.window;
    const uint64_t one = 1;
    for (int target = 0; target < kRanks; ++target) {
      if (!in_place()) {
        EXPECT_TRUE(window.mapped(target).empty());
        EXPECT_THROW(Window::Exclusion(window, target), Error);
        continue;
      }
      ASSERT_EQ(window.mapped(target).size(), memory.bytes().size());
      std::byte* const place = window.mapped(target).data() + sizeof(uint64_t);
      for (int time = 0; time < kTimes; ++time) {
        window.accumulate({&one, 1, DType::u64}, target, sizeof(uint64_t), ReduceOp::sum);
        const Window::Exclusion exclusion(window, target);
        uint64_t count = 0;
        std::memcpy(&count, place, sizeof(count));
        ++count;
        std::memcpy(place, &count, sizeof(count));
      }
    }
    window.fence();
    if (in_place()) {
      EXPECT_EQ(memory[1], uint64_t{2 * kRanks * kTimes});
    }
    window.free();
  });
}

// A signal arrives after the puts that were made before it. Signals are counted.
TEST_P(Windows, SignalsFollowWhatWasPut) {
  constexpr int kRanks = 3;
  run_ranks(kRanks, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Part<uint32_t> memory(world, 20'000);
    Window& window = memory.window;
    const int to = (job.rank + 1) % kRanks;
    for (uint32_t round = 1; round <= 40; ++round) {
      const std::vector<uint32_t> own(round % 2 == 0 ? memory.size() : 3, round);
      window.put({own.data(), own.size(), DType::u32}, to, 0);
      window.signal(to, 5);
      window.wait_signal(5);
      for (size_t i = 0; i < own.size(); ++i) ASSERT_EQ(memory[i], round) << i;
      window.signal((job.rank + kRanks - 1) % kRanks, 6);  // the part may be written again
      window.wait_signal(6);
    }
    for (int other = 0; other < kRanks; ++other) window.signal(other, 7, 10);
    window.wait_signal(7, 10 * kRanks);
    window.free();
  });
}

// The random calls of one rank. The test draws the same calls to compute the expected result.
struct Player {
  static constexpr uint64_t kSums = 64;
  static constexpr uint64_t kOwn = 16;
  int ranks;
  int calls;

  uint64_t words() const { return kSums + kOwn * static_cast<uint64_t>(ranks); }
  // add(to, at, value) adds to a sum. put(to, at, value) writes an element that only this rank
  // writes.
  template <typename Add, typename Put>
  void play(int from, const Add& add, const Put& put) const {
    std::mt19937 random(static_cast<unsigned>(from) + 17);
    for (int call = 0; call < calls; ++call) {
      const auto to = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const uint64_t value = random() % 1000;
      if (random() % 2 == 0) {
        add(to, random() % kSums, value);
      } else {
        put(to, kSums + kOwn * static_cast<uint64_t>(from) + random() % kOwn, value);
      }
    }
  }
  std::vector<std::vector<uint64_t>> wanted() const {
    std::vector<std::vector<uint64_t>> all(static_cast<size_t>(ranks),
                                           std::vector<uint64_t>(words()));
    for (int from = 0; from < ranks; ++from) {
      play(
          from, [&](int to, uint64_t at, uint64_t v) { all[static_cast<size_t>(to)][at] += v; },
          [&](int to, uint64_t at, uint64_t v) { all[static_cast<size_t>(to)][at] = v; });
    }
    return all;
  }
};

// All ranks make 10 000 random calls in total on all windows. The result is known, because sums
// commute, and each element that is put has one writer.
TEST_P(Windows, GiveTheExpectedResultOfRandomCalls) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Player player{ranks, 10'000 / ranks};
    const std::vector<std::vector<uint64_t>> wanted = player.wanted();
    run_ranks(ranks, [&](const Job& job) {
      Communicator world = Communicator::init(job);
      Part<uint64_t> memory(world, player.words());
      Window& window = memory.window;
      player.play(
          job.rank,
          [&](int to, uint64_t at, uint64_t value) {
            window.accumulate({&value, 1, DType::u64}, to, 8 * at, ReduceOp::sum);
          },
          [&](int to, uint64_t at, uint64_t value) {
            window.put({&value, 1, DType::u64}, to, 8 * at);
          });
      window.fence();
      EXPECT_EQ(memory.all(), wanted[static_cast<size_t>(job.rank)]);
      window.free();
    });
  }
}

// Ranks die half-way through random calls. Only calls that access them fail, with an error that
// names them. Values that they have flushed are kept.
TEST_P(Windows, ContinueWithoutDeadRanks) {
  for (const int ranks : {2, 3, 5, 8}) {
    const Player player{ranks, 4'000 / ranks};
    const std::vector<std::vector<uint64_t>> wanted = player.wanted();
    const auto dies = [](int rank) { return rank % 3 == 1; };
    run_ranks(ranks, [&](const Job& job) {
      Communicator world = Communicator::init(job);
      Part<uint64_t> memory(world, player.words(), {}, Members::may_die);
      Window& window = memory.window;
      const auto tried = [&](int to, const auto& call) {
        try {
          call();
        } catch (const Error& error) {
          EXPECT_TRUE(dies(to)) << error.what();
          EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(to)));
        }
      };
      player.play(
          job.rank,
          [&](int to, uint64_t at, uint64_t value) {
            tried(to, [&] {
              window.accumulate({&value, 1, DType::u64}, to, 8 * at, ReduceOp::sum);
            });
          },
          [&](int to, uint64_t at, uint64_t value) {
            tried(to, [&] { window.put({&value, 1, DType::u64}, to, 8 * at); });
          });
      window.flush_all();
      if (dies(job.rank)) return;
      window.fence();
      EXPECT_EQ(memory.all(), wanted[static_cast<size_t>(job.rank)]);
      window.fence();
      window.free();
    });
  }
}

// A rank serves requests while it computes and makes no calls.
TEST_P(Windows, AccessesCompleteWhileTheOwnerComputes) {
  settings().set("TUTTI_PROGRESS_THREAD", "1");
  std::atomic<bool> has_read = false;
  run_ranks(2, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Part<uint32_t> memory(world, 4, 40 + static_cast<uint32_t>(job.rank));
    Window& window = memory.window;
    if (job.rank == 0) {
      volatile double computed = 1;
      while (!has_read) computed = computed * 1.0000001;
    } else {
      uint32_t found = 0;
      window.get({&found, 1, DType::u32}, 0, 8);
      EXPECT_EQ(found, 40u);
      has_read = true;
    }
    window.free();
  });
}

TEST_P(Windows, RefuseAccessesOutside) {
  run_ranks(2, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Part<std::byte> memory(world, job.rank == 0 ? 100 : 0);
    Window& window = memory.window;
    std::vector<std::byte> own(101);
    const auto refused = [&](uint64_t bytes, int rank, uint64_t offset) {
      EXPECT_THROW(window.put({own.data(), bytes, DType::u8}, rank, offset), Error);
      EXPECT_THROW(window.get({own.data(), bytes, DType::u8}, rank, offset), Error);
    };
    refused(101, 0, 0);
    refused(1, 0, 100);
    refused(1, 0, ~uint64_t{0});
    refused(1, 1, 0);
    refused(1, 2, 0);
    refused(1, -1, 0);
    EXPECT_THROW(window.signal(0, Window::kSignals), Error);
    EXPECT_THROW(window.wait_signal(-1), Error);
    window.put({own.data(), 100, DType::u8}, 0, 0);
    window.put({own.data(), 0, DType::u8}, 1, 0);
    window.free();
    EXPECT_THROW(window.fence(), Error);
  });
}

// One thread signals another thread of the same rank. No other rank can wake it.
TEST_P(Windows, ThreadsReceiveSignalsOfTheirOwnRank) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](const Job& job) {
      Communicator world = Communicator::init(job);
      Part<uint32_t> memory(world, 4, {}, Members::may_die);
      Window& window = memory.window;
      std::jthread waiting([&] { window.wait_signal(1, 2); });
      window.signal(job.rank, 1);
      window.signal(job.rank, 1);
      waiting.join();
      window.free();
    });
  }
}

// Errors of calls that access a rank that left without free() name this rank.
TEST_P(Windows, NameARankThatIsGone) {
  const auto errors = run_ranks_catching(3, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Part<uint32_t> memory(world, 4);
    Window& window = memory.window;
    if (job.rank == 2) return;
    while (true) window.flush(2);  // flushes may succeed until rank 2 has left
  });
  ASSERT_TRUE(errors[0].has_value() && errors[1].has_value());
  // The rank that notices first aborts, and the other one may see this abort first.
  const std::string told = std::string(errors[0]->what()) + errors[1]->what();
  EXPECT_THAT(told, HasSubstr("rank 2"));
  EXPECT_FALSE(errors[2].has_value());
}

}  // namespace
}  // namespace tutti
