// Tests that survivors continue after deaths of ranks. Ranks are processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

using Body = std::function<std::string(Communicator&)>;

// Runs `body` on all ranks. Returns the result or exception text of each rank, which is empty for a
// dead rank.
std::vector<std::string> run_processes(int size, const std::string& transport, const Body& body,
                                       int spares = 0) {
  testing::LocalRendezvous rendezvous;
  std::vector<pid_t> pids;
  std::vector<int> reports;
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) throw system_error("pipe", errno);
    pids.push_back(::fork());
    if (pids.back() == 0) {
      ::close(ends[0]);
      Job job = rendezvous.job(rank, size);
      job.spares = spares;
      if (rank != 0) ::close(rendezvous.release_listener());
      std::string text;
      try {
        settings().set("TUTTI_TRANSPORT", transport);
        settings().set("TUTTI_TIMEOUT", "20");
        settings().set("TUTTI_LOG", "error");
        Communicator world = Communicator::init(job);
        text = body(world);
      } catch (const std::exception& error) {
        text = cat("threw: ", error.what());
      }
      [[maybe_unused]] const ssize_t written = ::write(ends[1], text.data(), text.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    reports.push_back(ends[0]);
  }
  ::close(rendezvous.release_listener());
  std::vector<std::string> texts;
  for (int rank = 0; rank < size; ++rank) {
    std::string text;
    char part[4096];
    for (ssize_t n = 0; (n = ::read(reports[rank], part, sizeof(part))) > 0;) text.append(part, n);
    ::close(reports[rank]);
    ::waitpid(pids[rank], nullptr, 0);
    texts.push_back(text);
  }
  return texts;
}

std::string sum_text(const Communicator& comm, const std::vector<int64_t>& values) {
  return cat(comm.size(), " ranks, sum ", values.front(), " to ", values.back());
}

// Repeats an all-reduce with the surviving ranks until it succeeds. Spare processes join until
// there are `strength` ranks. Returns the sum as text.
std::string sum_of_survivors(Communicator comm, int rank_of_world, int strength = 0) {
  for (;;) {
    try {
      std::vector<int64_t> values(1000, rank_of_world);
      comm.all_reduce(std::span(values));
      return sum_text(comm, values);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::rank_died) throw;
      comm = comm.shrink();
      if (strength > 0) comm = comm.grow(strength - comm.size());
    }
  }
}

std::string expected(int size, const std::vector<int>& dead) {
  int64_t sum = size * (size - 1) / 2;
  for (const int rank : dead) sum -= rank;
  return cat(size - static_cast<int>(dead.size()), " ranks, sum ", sum, " to ", sum);
}

// Returns the number of this rank in the job.
int job_rank_of(Communicator& comm) {
  for (int rank = 0;; ++rank) {
    if (comm.member(rank) == comm.rank()) return rank;
  }
}

bool has(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

// Waits in a barrier before ranks die. The first rank that leaves the barrier may die before the
// other ranks leave it.
void meet(Communicator& world) {
  try {
    world.barrier();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::rank_died) throw;
  }
}

class Survivors : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Survivors, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(Survivors, ContinueWithoutTheDead) {
  const std::vector<std::pair<int, std::vector<int>>> cases = {
      {2, {1}}, {3, {0}}, {4, {2}}, {5, {0, 1}}, {7, {1, 3, 6}}, {8, {0, 4}}, {16, {0, 1, 7, 15}}};
  for (const auto& [size, dead] : cases) {
    SCOPED_TRACE(cat(size, " ranks without ", ::testing::PrintToString(dead)));
    const std::vector<std::string> texts =
        run_processes(size, GetParam(), [&, dead = dead](Communicator& world) {
          meet(world);
          if (has(dead, world.rank())) die();
          return sum_of_survivors(world, world.rank());
        });
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(texts[rank], has(dead, rank) ? "" : expected(size, dead)) << "rank " << rank;
    }
  }
}

// Ranks die one after another, until one is left.
TEST_P(Survivors, ContinueAfterEachDeath) {
  constexpr int kRanks = 5;
  const std::vector<std::string> texts = run_processes(kRanks, GetParam(), [](Communicator& world) {
    const int own = world.rank();
    Communicator comm = world;
    std::string text;
    for (int dies : {0, 3, 1, 4}) {
      if (own == dies) die();
      for (bool done = false; !done;) {
        try {
          std::vector<int32_t> one{1};
          for (int i = 0; i < 100; ++i) {
            one = {1};
            comm.all_reduce(std::span(one));
          }
          // A rank that has not yet noticed the death repeats this.
          done = one.front() == comm.size() && comm.size() < world.size();
          if (done) text += cat(one.front(), " ");
        } catch (const Error&) {
          comm = comm.shrink();
        }
      }
      world = comm;
    }
    return text;
  });
  EXPECT_EQ(texts[2], "4 3 2 1 ");
}

// Further ranks die while the survivors handle the first death.
TEST_P(Survivors, ContinueWhenSomeDieInShrink) {
  constexpr int kRanks = 6;
  for (int step = 0; step < 16; ++step) {
    for (const std::vector<int>& dead : {std::vector{3, 0}, std::vector{0, 1}}) {
      SCOPED_TRACE(cat("step ", step, ", ", ::testing::PrintToString(dead)));
      const std::vector<std::string> texts =
          run_processes(kRanks, GetParam(), [&](Communicator& world) {
            const int own = world.rank();
            meet(world);
            if (own == dead[0]) die();
            if (own == dead[1]) {
              std::thread([step] {
                ::usleep(48'000 + static_cast<useconds_t>(step) * 500);
                die();
              }).detach();
            }
            // Some ranks may have completed before the second death, and others not. All ranks must
            // agree on which.
            for (Communicator comm = world;; comm = comm.shrink()) {
              std::string text;
              try {
                std::vector<int64_t> values(1000, own);
                comm.all_reduce(std::span(values));
                text = sum_text(comm, values);
              } catch (const Error& error) {
                if (error.code() != ErrorCode::rank_died) throw;
              }
              const bool good = text == expected(kRanks, dead);
              if (comm.agree(good ? 1 : 0).flags == 1) return text;
            }
          });
      for (int rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(texts[rank], has(dead, rank) ? "" : expected(kRanks, dead)) << "rank " << rank;
      }
    }
  }
}

// The second death must be reported as such, not as an exclusion of the dead rank by the others.
TEST_P(Survivors, ReportASecondDeathAsItself) {
  const std::vector<std::string> texts = run_processes(5, GetParam(), [](Communicator& world) {
    meet(world);
    const int own = world.rank();
    if (own == 4) die();
    Communicator left = world.shrink();
    meet(left);
    if (own == 1) die();
    try {
      for (;;) left.barrier();
    } catch (const Error& error) {
      return cat("rank ", error.rank());
    }
  });
  for (const int rank : {0, 2, 3}) EXPECT_EQ(texts[rank], "rank 1");
}

TEST_P(Survivors, AgreeOnFlagsAndOnTheSurvivors) {
  const std::vector<std::string> texts = run_processes(4, GetParam(), [](Communicator& world) {
    if (world.rank() == 1) die();
    const Agreement agreement = world.agree(world.rank() == 3 ? 6 : 12);
    return cat(agreement.flags, ": ", ::testing::PrintToString(agreement.living));
  });
  for (const int rank : {0, 2, 3}) EXPECT_EQ(texts[rank], "4: { 0, 2, 3 }");
}

std::string text_of(const Membership& membership) {
  return cat("epoch ", membership.epoch, " members ", membership.digest);
}

// Newcomers have the same membership number, although they did not take part in earlier changes.
TEST_P(Survivors, HaveOneMembershipThatEachChangeRaises) {
  constexpr int kRanks = 4;
  const std::vector<std::string> texts = run_processes(
      kRanks + 1, GetParam(),
      [](Communicator& world) {
        if (job_rank_of(world) == kRanks) return text_of(world.membership());
        meet(world);
        if (world.rank() == 1) die();
        const Membership first = world.membership();
        Communicator left = world.shrink();
        const Membership second = left.membership();
        const Membership part = left.split(left.rank() % 2).membership();
        const bool alike = part.epoch == second.epoch && left.duplicate().membership() == second;
        Communicator grown = left.grow(1);
        const Membership third = grown.membership();
        if (!alike || first.epoch != 0 || first.epoch >= second.epoch ||
            second.epoch >= third.epoch || first.digest == second.digest ||
            second.digest == third.digest) {
          return cat(text_of(first), ", ", text_of(second), ", ", text_of(third));
        }
        return text_of(third);
      },
      1);
  EXPECT_THAT(texts[0], HasSubstr("epoch 2 "));
  for (const int rank : {2, 3, 4}) EXPECT_EQ(texts[rank], texts[0]) << "rank " << rank;
}

// Without a launcher, survivors do not know whether the other ranks have ended or are cut off.
TEST_P(Survivors, MinoritiesDoNotContinue) {
  const std::vector<std::string> texts = run_processes(5, GetParam(), [](Communicator& world) {
    meet(world);
    if (world.rank() < 3) die();
    return sum_of_survivors(world, world.rank());
  });
  for (const int rank : {3, 4}) {
    EXPECT_THAT(texts[rank], HasSubstr("of 5 members can be reached"));
  }
}

TEST_P(Survivors, GrowBackToFullStrength) {
  struct Case {
    int ranks, spares;
    std::vector<int> dead;
  };
  const std::vector<Case> cases = {{2, 1, {1}},    {3, 1, {0}}, {4, 2, {1, 2}},
                                   {5, 1, {0, 3}}, {8, 3, {0}}, {3, 2, {}}};
  for (const auto& [ranks, spares, dead] : cases) {
    SCOPED_TRACE(
        cat(ranks, " ranks and ", spares, " spares, without ", ::testing::PrintToString(dead)));
    const int size = ranks + spares;
    std::vector<std::string> texts = run_processes(
        size, GetParam(),
        [&, ranks = ranks, dead = dead](Communicator& world) {
          // Newcomers have higher ranks than the others.
          const int own = job_rank_of(world);
          if (own < ranks) meet(world);
          if (has(dead, own)) die();
          return sum_of_survivors(world, own, ranks);
        },
        spares);
    const int taken = std::min<int>(spares, static_cast<int>(dead.size()));
    int64_t sum = 0;
    for (int rank = 0; rank < ranks + taken; ++rank) sum += has(dead, rank) ? 0 : rank;
    const std::string all = cat(ranks - std::ssize(dead) + taken, " ranks, sum ", sum, " to ", sum);
    for (int rank = 0; rank < size; ++rank) {
      if (rank < ranks + taken) {
        EXPECT_EQ(texts[rank], has(dead, rank) ? "" : all) << "rank " << rank;
      } else {
        EXPECT_THAT(texts[rank], HasSubstr("without using this spare rank"));
      }
    }
  }
}

TEST_P(Survivors, GrowAgainAfterANewcomerDied) {
  constexpr int kRanks = 3;
  const std::vector<std::string> texts = run_processes(
      kRanks + 2, GetParam(),
      [](Communicator& world) {
        const int own = job_rank_of(world);
        if (own < kRanks) meet(world);
        if (own == 0 || own == kRanks) die();
        return sum_of_survivors(world, own, kRanks);
      },
      2);
  for (const int rank : {1, 2, 4}) EXPECT_EQ(texts[rank], "3 ranks, sum 7 to 7");
}

TEST_P(Survivors, RefuseToGrowAPartOfTheJob) {
  const std::vector<std::string> texts = run_processes(3, GetParam(), [](Communicator& world) {
    Communicator part = world.split(world.rank() / 2);
    std::string text;
    try {
      part.grow(1);
    } catch (const Error& error) {
      text = error.what();
    }
    world.barrier();
    return text;
  });
  EXPECT_THAT(texts[0], HasSubstr("rank 2"));
  EXPECT_THAT(texts[2], HasSubstr("is active in the job, but is not a member of the communicator"));
}

// Sanitizers keep freed memory, and records of accesses.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizerTakesMemory = true;
#else
constexpr bool kSanitizerTakesMemory = false;
#endif

int64_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident;
}

std::ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST_P(Survivors, LeaveNothingBehindInManyCycles) {
  const std::vector<std::string> texts = run_processes(3, GetParam(), [](Communicator& world) {
    int64_t pages = 0;
    std::ptrdiff_t open = 0;
    for (int cycle = 0; cycle < 200; ++cycle) {
      if (cycle == 50) {
        pages = resident_pages();
        open = descriptors();
      }
      world = cycle % 2 == 0 ? world.shrink() : world.grow(0);
      std::vector<int64_t> one{1};
      world.all_reduce(std::span(one));
      if (one.front() != 3) return cat("the sum is ", one.front());
    }
    world.barrier();
    if (descriptors() > open + 8) return cat(descriptors() - open, " more descriptors");
    const int64_t more = resident_pages() - pages;
    return more > 1024 && !kSanitizerTakesMemory ? cat(more, " more pages") : std::string("well");
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "well");
}

TEST_P(Survivors, ShrinkWithoutADeath) {
  const std::vector<std::string> texts = run_processes(3, GetParam(), [](Communicator& world) {
    std::string text;
    for (int cycle = 0; cycle < 20; ++cycle) world = world.shrink();
    return sum_of_survivors(world, world.rank());
  });
  for (const std::string& text : texts) EXPECT_EQ(text, expected(3, {}));
}

}  // namespace
}  // namespace tutti
