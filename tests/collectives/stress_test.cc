// Tests many communicators at once, with several calls in flight on each. Two threads per rank
// visit the communicators, and wait for the calls, in different orders. No call may deadlock, every
// result must be right, and no resource may remain.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "collectives/group.h"
#include "tests/collectives/random_calls.h"
#include "tests/support/leftovers.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using testing::Case;
using testing::Random;
using testing::RankCall;

constexpr int kRanks = 16;
constexpr uint64_t kLargest = 8 << 10;  // bytes per block

struct Member {
  Communicator comm;
  uint64_t seed = 0;  // the same on all ranks of the communicator
};

// Returns the colours of the splits in each round. They create 64 communicators in total.
const std::vector<std::function<int(int)>>& splits() {
  static const std::vector<std::function<int(int)>> all = {
      [](int) { return 0; },        [](int) { return 0; },
      [](int) { return 0; },        [](int r) { return r / 8; },
      [](int r) { return r % 2; },  [](int r) { return r / 4; },
      [](int r) { return r % 4; },  [](int r) { return r / 2; },
      [](int r) { return r % 8; },  [](int r) { return (r + 1) % 16 / 2; },
      [](int r) { return r / 3; },  [](int r) { return r / 5; },
      [](int r) { return r < 13; }, [](int r) { return r % 3; },
      [](int r) { return r % 5; },  [](int r) { return r * 7 % 16 / 4; },
  };
  return all;
}

int communicators_in(size_t rounds) {
  int count = 1;  // counts the world
  for (size_t i = 0; i < rounds; ++i) {
    std::vector<int> colors(kRanks);
    for (int r = 0; r < kRanks; ++r) colors[r] = splits()[i](r);
    std::ranges::sort(colors);
    count += static_cast<int>(std::ranges::unique(colors).begin() - colors.begin());
  }
  return count;
}

std::vector<Member> join_all(const Job& job, size_t rounds) {
  std::vector<Member> members = {{Communicator::init(job), 1}};
  Communicator world = members[0].comm;
  for (size_t i = 0; i < rounds; ++i) {
    const int color = splits()[i](world.rank());
    const int key = i % 2 == 0 ? world.rank() : -world.rank();
    members.push_back({world.split(color, key), 1000 * (i + 1) + color});
  }
  return members;
}

// The calls of one rank on one communicator, in one round.
class Round {
 public:
  Round(Communicator& comm, uint64_t seed) : comm_(comm), seed_(seed) {
    Random random(seed);
    prepares_ = random.one_in(3);
    groups_ = random.one_in(3);
    cases_.resize(1 + random.below(3));
    for (Case& c : cases_) c = draw_case(random, comm.size(), kLargest);
    for (size_t i = 0; i < cases_.size(); ++i)
      calls_.emplace_back(cases_[i], comm.rank(), seed + i);
  }

  void start(std::vector<Work>& works) {
    if (groups_) group_begin();
    for (RankCall& call : calls_) {
      for (Request& request : call.requests()) {
        Work work = prepares_ ? comm_.prepare(std::move(request), call.options()).start()
                              : comm_.start(std::move(request), call.options());
        if (!groups_) works.push_back(work);
      }
    }
    if (!groups_) return;
    for (Work& work : group_end_async()) works.push_back(work);
  }

  void check() const {
    for (size_t i = 0; i < calls_.size(); ++i) {
      EXPECT_EQ(calls_[i].problem(), "")
          << "seed " << seed_ << ", rank " << comm_.rank() << ": " << describe(cases_[i]);
    }
  }

 private:
  Communicator comm_;
  uint64_t seed_;
  bool prepares_ = false;
  bool groups_ = false;
  std::vector<Case> cases_;
  std::vector<RankCall> calls_;
};

// The body of one thread of a rank. It calls on the communicators of `members`.
void call_in_rounds(std::vector<Member> members, int rounds, uint64_t order) {
  std::mt19937_64 shuffler(order);
  for (int i = 0; i < rounds; ++i) {
    std::ranges::shuffle(members, shuffler);
    std::vector<Work> works;
    std::vector<std::unique_ptr<Round>> all;
    for (Member& member : members) {
      all.push_back(std::make_unique<Round>(member.comm, member.seed + 100'000 * i));
      all.back()->start(works);
    }
    testing::wait_for_all(works, order + i);
    for (const auto& round : all) round->check();
  }
}

void run_rank(const Job& job, size_t splits, int rounds) {
  const std::vector<Member> members = join_all(job, splits);
  // The first threads of all ranks have the same communicators, and so have the second ones.
  std::vector<std::vector<Member>> shares(2);
  for (size_t i = 0; i < members.size(); ++i) shares[i % 2].push_back(members[i]);
  std::exception_ptr failure;
  std::jthread other([&] {
    try {
      call_in_rounds(shares[1], rounds, 77 + job.rank);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  call_in_rounds(shares[0], rounds, 55 + job.rank);
  other.join();
  if (failure) std::rethrow_exception(failure);
}

class Stress : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(Both, Stress, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(Stress, ManyCommunicatorsAtOnce) {
  // Over TCP, fewer communicators are made, because each needs a socket per pair of ranks.
  const bool shm = GetParam() == "shm";
  const size_t rounds_of_splits = shm ? splits().size() : 4;
  EXPECT_EQ(communicators_in(splits().size()), 64);
  testing::run_ranks(kRanks, [](const Job& job) {
    run_rank(job, 0, 1);
  });  // opens descriptors and threads that stay open
  const size_t descriptors = testing::open_descriptors();
  const size_t threads = testing::running_threads();
  testing::run_ranks(kRanks,
                     [&](const Job& job) { run_rank(job, rounds_of_splits, shm ? 12 : 4); });
  EXPECT_EQ(testing::open_descriptors(), descriptors);
  EXPECT_LE(testing::threads_at_rest(threads), threads);
  EXPECT_EQ(testing::shared_mappings(), 0);
}

}  // namespace
}  // namespace tutti
