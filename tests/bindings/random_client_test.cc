// Tests a client that makes random correct and erroneous calls of the C interface: absurd counts,
// ranks, roots, types, operators, pointers and options, and calls in the wrong order, on all ranks
// or on one of them. The rank that makes an error must get an error code; no call may crash or
// hang; correct calls must give correct results.
//
// The ranks are threads. They draw from generators with the same seed, so each rank can derive the
// calls of all others. RANDOM_SEED=N repeats a run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/c/tutti.h"
#include "tests/bindings/random_call.h"
#include "tests/bindings/random_messages.h"
#include "tests/bindings/random_mistake.h"
#include "tests/bindings/random_side.h"

namespace tutti::testing {
namespace {

constexpr int kSteps = 2'500;  // for each of four numbers of ranks

// Seed of the whole run.
uint64_t seed() {
  static const uint64_t value = [] {
    const char* given = std::getenv("RANDOM_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  }();
  return value;
}

// ---- a rank

class Client {
 public:
  Client(int rank, int p, const std::string& rendezvous)
      : rank_(rank), p_(p), shared_(seed() + p), own_(seed() + 1000 * p + rank) {
    tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
    options.rank = rank;
    options.ranks = p;
    options.rendezvous_file = rendezvous.c_str();
    EXPECT_EQ(tutti_init(&world_, &options), TUTTI_OK) << tutti_error_text();
  }
  ~Client() {
    tutti_destroy(comm_);
    tutti_destroy(world_);
  }

  void run() {
    renew();
    for (step_ = 0; step_ < kSteps && !::testing::Test::HasFatalFailure(); ++step_) {
      const uint64_t kind = shared_.below(100);
      if (kind < 55) {
        all_make(draw(shared_, p_));
      } else if (kind < 82) {
        all_make(wrong_call(-1));
      } else if (kind < 84) {
        all_make(wrong_call(static_cast<int>(shared_.below(p_))));
      } else if (kind < 85) {
        make_different_calls();
      } else if (kind < 86) {
        make_and_drop(draw(shared_, p_));
      } else if (kind < 89) {
        exchange_messages(comm_, shared_, own_);
      } else if (kind < 91) {
        follow_one_another(draw(shared_, p_));
      } else if (kind < 92) {
        give_up();
      } else if (kind < 94) {
        make_of_some();
      } else {
        make_mistake(comm_, own_);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }

 private:
  // Replaces communicators that were aborted.
  void renew() {
    tutti_destroy(comm_);
    ASSERT_EQ(tutti_split(world_, 0, 0, &comm_), TUTTI_OK) << tutti_error_text();
  }

  // A barrier before an abort. Otherwise the abort would also end earlier calls that some ranks
  // have completed.
  void all_have_come_here() { ASSERT_EQ(tutti_barrier(world_, nullptr), TUTTI_OK); }

  Call wrong_call(int rank) {
    Call call = draw(shared_, p_);
    call.wrong = static_cast<Wrong>(1 + shared_.below(kWrongs - 1));
    call.wrong_rank = rank;
    return call;
  }

  void all_make(const Call& call) {
    int refused = 0;
    int taking_part = 0;
    for (int r = 0; r < p_; ++r) {
      if (!call.takes_part(r, p_)) continue;
      ++taking_part;
      refused += Side(call, r, p_).must_be_refused() ? 1 : 0;
    }
    const bool ends_badly = refused > 0 && refused < taking_part;
    if (ends_badly) all_have_come_here();
    const Side side(call, rank_, p_);
    tutti_status_t status = TUTTI_OK;
    if (call.takes_part(rank_, p_)) status = make(comm_, side, call);
    if (side.must_be_refused() && call.takes_part(rank_, p_)) {
      ASSERT_TRUE(status == TUTTI_INVALID_ARGUMENT || status == TUTTI_UNSUPPORTED ||
                  status == TUTTI_SYSTEM || (ends_badly && status == TUTTI_ABORTED))
          << describe(call) << " gave " << status;
      side.expect_untouched();
      if (ends_badly) {
        ASSERT_EQ(tutti_abort(comm_, "it was refused"), TUTTI_OK);
      }
    } else if (refused == 0) {
      ASSERT_EQ(status, TUTTI_OK) << describe(call) << ": " << tutti_error_text();
      if (call.takes_part(rank_, p_)) side.expect_right();
    }
    if (!ends_badly) return;
    EXPECT_NE(tutti_barrier(comm_, nullptr), TUTTI_OK) << describe(call);
    renew();
  }

  void make_different_calls() {
    if (p_ == 1) return;
    all_have_come_here();
    const auto odd = static_cast<int>(shared_.below(p_));
    std::array<int32_t, 64> memory = {};
    const tutti_buffer_t buffer = tutti_host(memory.data(), 8, TUTTI_I32);
    const tutti_status_t first = rank_ == odd
                                     ? tutti_barrier(comm_, nullptr)
                                     : tutti_all_reduce(comm_, buffer, buffer, TUTTI_SUM, nullptr);
    const tutti_status_t second = tutti_barrier(comm_, nullptr);
    EXPECT_TRUE(first != TUTTI_OK || second != TUTTI_OK) << "step " << step_;
    renew();
  }

  // Drops the handle of a call in flight, and checks that a later call completes after it.
  void make_and_drop(const Call& call) {
    const Side side(call, rank_, p_);
    if (call.takes_part(rank_, p_)) {
      tutti_work_t* work = nullptr;
      ASSERT_EQ(tutti_start(comm_, &side.request(), nullptr, &work), TUTTI_OK)
          << tutti_error_text();
      if (call.collective == TUTTI_SEND) {
        ASSERT_EQ(tutti_wait(work), TUTTI_OK);
      }
      tutti_work_free(work);
    }
    ASSERT_EQ(tutti_barrier(comm_, nullptr), TUTTI_OK) << tutti_error_text();
    if (call.takes_part(rank_, p_)) side.expect_right();
  }

  // One rank aborts. All ranks report the abort and which rank made it.
  void give_up() {
    EXPECT_EQ(tutti_comm_status(comm_), TUTTI_OK);
    all_have_come_here();
    const auto odd = static_cast<int>(shared_.below(p_));
    if (rank_ == odd) {
      ASSERT_EQ(tutti_abort(comm_, own_.once_in(2) ? nullptr : "enough"), TUTTI_OK);
    }
    const tutti_status_t status = p_ == 1 ? TUTTI_ABORTED : tutti_barrier(comm_, nullptr);
    EXPECT_EQ(status, TUTTI_ABORTED) << tutti_error_text();
    EXPECT_EQ(tutti_comm_status(comm_), TUTTI_ABORTED);
    if (p_ > 1) {
      EXPECT_EQ(tutti_error_rank(), odd) << tutti_error_text();
    }
    renew();
  }

  // The second call, on another communicator, waits for the first; each reports completion once.
  void follow_one_another(const Call& call) {
    const Side side(call, rank_, p_);
    if (!call.takes_part(rank_, p_)) return;
    std::array<int, 2> ends = {};
    const auto count_end = [](tutti_status_t status, const char*, void* context) {
      *static_cast<int*>(context) += status == TUTTI_OK ? 1 : 100;
    };
    std::array<tutti_work_t*, 2> works = {};
    ASSERT_EQ(tutti_start(comm_, &side.request(), nullptr, &works[0]), TUTTI_OK);
    ASSERT_EQ(tutti_work_on_end(works[0], count_end, &ends[0]), TUTTI_OK);
    tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
    options.after = works.data();
    options.after_count = 1;
    ASSERT_EQ(tutti_start(world_, &side.request(), &options, &works[1]), TUTTI_OK);
    ASSERT_EQ(tutti_work_on_end(works[1], count_end, &ends[1]), TUTTI_OK);
    ASSERT_EQ(finish(works[1], call.garbage), TUTTI_OK) << describe(call) << tutti_error_text();
    ASSERT_EQ(finish(works[0], call.garbage), TUTTI_OK) << describe(call) << tutti_error_text();
    EXPECT_EQ(ends, (std::array<int, 2>{1, 1})) << describe(call);
    side.expect_right();
  }

  // Creates a communicator of some of the ranks in any order, without the other ranks.
  void make_of_some() {
    std::vector<int32_t> ranks;
    for (int r = 0; r < p_; ++r) {
      if (!shared_.once_in(3)) ranks.push_back(r);
    }
    for (size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[shared_.below(i)]);
    const auto tag = static_cast<int32_t>(shared_.below(TUTTI_LARGEST_TAG + uint64_t{1}));
    const auto place = std::ranges::find(ranks, rank_) - ranks.begin();
    const auto members = static_cast<int>(ranks.size());
    const Call call = draw(shared_, std::max(members, 1));
    if (place == members) return;
    tutti_comm_t* some = nullptr;
    ASSERT_EQ(tutti_create(comm_, ranks.data(), ranks.size(), tag, &some), TUTTI_OK)
        << tutti_error_text();
    EXPECT_EQ(tutti_rank(some), place);
    EXPECT_EQ(tutti_size(some), members);
    const Side side(call, static_cast<int>(place), members);
    if (call.takes_part(static_cast<int>(place), members)) {
      EXPECT_EQ(make(some, side, call), TUTTI_OK) << describe(call) << tutti_error_text();
      side.expect_right();
    }
    tutti_destroy(some);
  }

  std::string describe(const Call& call) const {
    return "step " + std::to_string(step_) + " on rank " + std::to_string(rank_) + " of " +
           std::to_string(p_) + ": collective " + std::to_string(call.collective) + ", mistake " +
           std::to_string(static_cast<int>(call.wrong)) + " of rank " +
           std::to_string(call.wrong_rank) + ", form " + std::to_string(call.form) + ", number " +
           std::to_string(call.absurd) + (call.uneven ? ", uneven" : "");
  }

  int rank_;
  int p_;
  Random shared_;
  Random own_;
  int step_ = 0;
  tutti_comm_t* world_ = nullptr;
  tutti_comm_t* comm_ = nullptr;
};

class RandomClient : public ::testing::TestWithParam<int> {};

TEST_P(RandomClient, GetsAnErrorOrTheRightResult) {
  ::setenv("TUTTI_TOKEN", "a token of random_client", 1);
  ::setenv("TUTTI_LOG", "error", 1);
  ::setenv("TUTTI_TIMEOUT", "20", 1);  // ends calls that would hang
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
  const int p = GetParam();
  std::printf("RANDOM_SEED=%llu\n", static_cast<unsigned long long>(seed()));
  const std::string rendezvous =
      ::testing::TempDir() + "random_client." + std::to_string(::getpid()) + std::to_string(p);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < p; ++rank) {
    ranks.emplace_back([&, rank] { Client(rank, p, rendezvous).run(); });
  }
  for (std::thread& rank : ranks) rank.join();
  std::filesystem::remove(rendezvous);
}

INSTANTIATE_TEST_SUITE_P(Ranks, RandomClient, ::testing::Range(1, 5));

}  // namespace
}  // namespace tutti::testing
