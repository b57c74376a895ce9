// Tests a stage that is killed, stopped, stuck or fails at any of its entries. All other stages
// must end and report which rank failed and what they were doing. Ranks are processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"
#include "training/pipeline/executor.h"
#include "training/pipeline/plan.h"
#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 3;
constexpr int kMicroBatches = 3;
// Seconds after which a rank that hangs is killed, so that the test fails.
constexpr unsigned kHangs = 30;

enum class Fault { kill, stop, loop, error };

struct Planted {
  Fault fault = Fault::kill;
  int rank = 0;
  size_t entry = 0;  // index of the entry in the rank's table at which the fault occurs
};

// Returns the number of ranks that have begun their plan, in memory that all processes of a run
// share.
std::atomic<int>& begun() {
  static void* const memory = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  static auto* const count = new (memory) std::atomic<int>(0);
  return *count;
}

class FaultyStage : public StageWork {
 public:
  FaultyStage(const Planted& planted, int rank) : planted_(planted), rank_(rank) {}

  Tensor shape_after(int, int) const override {
    begin();
    return tensor_at(static_cast<float*>(nullptr), DType::f32, 1, 1);
  }
  Tensor forward(const Action&, ConstTensor) override { return next(); }
  Tensor backward(const Action&, ConstTensor) override { return next(); }
  void backward_weight(const Action&) override { next(); }

 private:
  void begin() const {
    if (!std::exchange(has_begun_, true)) ++begun();
  }
  Tensor next() {
    begin();
    if (rank_ == planted_.rank && entries_++ == planted_.entry) fail();
    return tensor_at(&value_, DType::f32, 1, 1);
  }
  // Waits until all ranks have begun their plan, and then fails.
  void fail() const {
    while (begun() < kRanks) std::this_thread::yield();
    switch (planted_.fault) {
      case Fault::kill:
        ::raise(SIGKILL);
        break;
      case Fault::stop:
        ::raise(SIGSTOP);
        break;
      case Fault::loop:
        for (;;) ::pause();
      case Fault::error:
        throw Error(ErrorCode::invalid_argument, "token 300 is not in the vocabulary");
    }
  }

  const Planted planted_;
  const int rank_;
  mutable bool has_begun_ = false;
  size_t entries_ = 0;
  float value_ = 0;
};

Plan plan() { return make_plan(one_f_one_b(kRanks, kMicroBatches)); }

[[noreturn]] void be_rank(const Job& job, const Planted& planted, int report) {
  ::alarm(kHangs);
  std::string text = "ok";
  try {
    settings().set("TUTTI_TIMEOUT", "1.5");
    settings().set("TUTTI_LOG", "error");
    Communicator stages = Communicator::init(job);
    Communicator alone = stages.split(stages.rank());
    Executor executor(Boundary(stages, alone));
    FaultyStage stage(planted, stages.rank());
    executor.run(plan(), stage);
  } catch (const std::exception& error) {  // at this point, unfinished work has been destroyed
    text = error.what();
  }
  [[maybe_unused]] const ssize_t written = ::write(report, text.data(), text.size());
  ::_exit(0);
}

std::string read_all(int fd) {
  std::string text;
  char part[4096];
  for (ssize_t n = 0; (n = ::read(fd, part, sizeof(part))) > 0;) text.append(part, n);
  ::close(fd);
  return text;
}

struct Rank {
  pid_t pid = 0;
  int report = -1;
  std::string text;  // "ok", or the rank's error
};

// Runs all ranks as processes. The faulty rank is awaited last, and killed if necessary.
std::vector<Rank> run(const Planted& planted) {
  begun() = 0;
  tutti::testing::LocalRendezvous rendezvous;
  std::vector<Rank> ranks(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    Rank& rank = ranks[static_cast<size_t>(r)];
    rank.pid = ::fork();
    if (rank.pid == 0) {
      ::close(ends[0]);
      const Job job = rendezvous.job(r, kRanks);
      if (r != 0) ::close(rendezvous.release_listener());
      be_rank(job, planted, ends[1]);
    }
    ::close(ends[1]);
    rank.report = ends[0];
  }
  ::close(rendezvous.release_listener());
  const auto end = [](Rank& rank) {
    rank.text = read_all(rank.report);
    ::waitpid(rank.pid, nullptr, 0);
  };
  Rank& faulty = ranks[static_cast<size_t>(planted.rank)];
  for (Rank& rank : ranks) {
    if (&rank != &faulty) end(rank);
  }
  if (planted.fault != Fault::error) ::kill(faulty.pid, SIGKILL);
  end(faulty);
  return ranks;
}

// Returns, for each rank, true if it needs a result, directly or indirectly, that the planted fault
// prevents.
std::vector<bool> in_need(const Plan& plan, const Planted& planted) {
  const Schedule& schedule = plan.schedule;
  std::vector<size_t> done(schedule.table.size(), 0);
  std::vector<Entry> made;
  const auto can = [&](size_t rank) {
    const std::vector<Entry>& entries = schedule.table[rank];
    if (done[rank] == entries.size()) return false;
    if (static_cast<int>(rank) == planted.rank && done[rank] == planted.entry) return false;
    const Entry& entry = entries[done[rank]];
    return !needs_input(schedule, entry) || std::ranges::find(made, input_of(entry)) != made.end();
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < done.size(); ++rank) {
      while (can(rank)) {
        made.push_back(schedule.table[rank][done[rank]++]);
        moved = true;
      }
    }
  }
  std::vector<bool> needs;
  for (size_t rank = 0; rank < done.size(); ++rank) {
    needs.push_back(done[rank] < schedule.table[rank].size());
  }
  return needs;
}

class Failure : public ::testing::Test {
 protected:
  // Expects each other stage to report the faulty rank with a message that matches `what`.
  template <typename What>
  void expect_all_told(const Planted& planted, const What& what) {
    SCOPED_TRACE(cat("rank ", planted.rank, ", entry ", planted.entry));
    const std::vector<Rank> ranks = run(planted);
    const std::vector<bool> needs = in_need(plan(), planted);
    const Rank& faulty = ranks[static_cast<size_t>(planted.rank)];
    for (int r = 0; r < kRanks; ++r) {
      if (r == planted.rank) continue;
      const std::string& text = ranks[static_cast<size_t>(r)].text;
      // A rank that needed no further result may have completed before the fault.
      if (text == "ok" && !needs[static_cast<size_t>(r)]) continue;
      EXPECT_THAT(text, what(cat("rank ", planted.rank, " \\([^,]*, pid ", faulty.pid, "\\)")));
      EXPECT_THAT(text, ContainsRegex(cat("rank ", r, " \\([^,]*, pid [0-9]+\\), stage ", r,
                                          ", in the [a-z]+ of micro-batch [0-2] ")));
      EXPECT_THAT(text,
                  ContainsRegex(cat(", pid ", faulty.pid, "\\)(,| is) stage ", planted.rank)));
    }
    told_ = faulty.text;
  }

  std::string told_;  // error message of the faulty rank
};

TEST_F(Failure, AStageIsKilledAtEveryEntry) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (size_t entry = 0; entry < 2 * kMicroBatches; ++entry) {
      expect_all_told({Fault::kill, rank, entry}, [](const std::string& who) {
        return ContainsRegex(cat("^", who, " (was killed by signal 9|vanished: )"));
      });
    }
  }
}

TEST_F(Failure, AStageIsStopped) {
  for (const size_t entry : {0, 3}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      expect_all_told({Fault::stop, rank, entry}, [](const std::string& who) {
        // Questions to other ranks pass through rank 0, so that it may be named as well.
        return AllOf(HasSubstr(" timed out after 1.5 s in "),
                     ContainsRegex(
                         cat("(waiting for|is reached through) ", who, ", which does not answer")));
      });
    }
  }
}

TEST_F(Failure, AStageIsStuckInItsWork) {
  for (int rank = 0; rank < kRanks; ++rank) {
    expect_all_told({Fault::loop, rank, 2}, [](const std::string& who) {
      return AllOf(HasSubstr(" timed out after 1.5 s in "),
                   ContainsRegex(cat("waiting for ", who, ", which waits for no rank")));
    });
  }
}

TEST_F(Failure, AStagesOwnErrorIsReportedOnAll) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (size_t entry = 0; entry < 2 * kMicroBatches; ++entry) {
      expect_all_told({Fault::error, rank, entry}, [](const std::string& who) {
        return ContainsRegex(who + " aborted: token 300 is not in the vocabulary");
      });
      EXPECT_THAT(told_, StartsWith("token 300 is not in the vocabulary [rank "));
      EXPECT_THAT(told_, HasSubstr(cat(", stage ", rank, ", in the ")));
    }
  }
}

}  // namespace
}  // namespace tutti::training::pipeline
