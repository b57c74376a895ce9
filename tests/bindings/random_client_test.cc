// A client of the C interface that does at random what clients do, right and wrong: absurd counts,
// ranks, roots, types, operators, pointers and options, calls in the wrong order, on all ranks
// alike or on one of them. What is wrong must come back as an error on the rank that did it, never
// as a crash, a hang or a silent nothing; what is right must have the right result.
//
// The ranks are threads. They draw from generators with the same seed, so that each knows what all
// do; RANDOM_SEED=N repeats a run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bindings/c/tutti.h"
#include "tests/bindings/random_call.h"
#include "tests/bindings/random_side.h"

namespace tutti::testing {
namespace {

constexpr int kSteps = 2'500;  // for each of four numbers of ranks

// The seed of a whole run.
uint64_t seed() {
  static const uint64_t value = [] {
    const char* given = std::getenv("RANDOM_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  }();
  return value;
}

// ---- mistakes that have nothing to do with the other ranks

void expect_error(tutti_status_t status, int which) {
  EXPECT_NE(status, TUTTI_OK) << "mistake " << which;
  EXPECT_GT(std::string(tutti_error_text()).size(), 10u) << "mistake " << which;
}

constexpr int kMistakes = 27;

void make_mistake(tutti_comm_t* comm, Random& random) {
  const auto which = static_cast<int>(random.below(kMistakes));
  const uint64_t absurd = absurd_count(random);
  tutti_work_t* work = nullptr;
  tutti_comm_t* other = nullptr;
  tutti_prepared_t* prepared = nullptr;
  void* memory = nullptr;
  int done = 0;
  std::array<std::byte, 16> bytes = {};
  const tutti_buffer_t buffer = tutti_host(bytes.data(), 4, TUTTI_I32);
  tutti_request_t request = TUTTI_REQUEST_INIT;
  tutti_init_options_t init = TUTTI_INIT_OPTIONS_INIT;
  const auto is = [&](int number, auto action) {
    if (which == number) expect_error(action(), which);
  };
  is(0, [&] { return tutti_wait(nullptr); });
  is(1, [&] { return tutti_test(nullptr, &done); });
  is(2, [&] { return tutti_wait_for(nullptr, 1, &done); });
  is(3, [&] { return tutti_work_abort(nullptr, nullptr); });
  is(4, [&] { return tutti_all_reduce(nullptr, buffer, buffer, TUTTI_SUM, nullptr); });
  is(5, [&] { return tutti_all_reduce_async(comm, buffer, buffer, TUTTI_SUM, nullptr, nullptr); });
  is(6, [&] { return tutti_barrier_async(nullptr, nullptr, &work); });
  is(7, [&] { return tutti_run(comm, nullptr, nullptr); });
  is(8, [&] { return tutti_start(comm, &request, nullptr, nullptr); });
  is(9, [&] { return tutti_prepare(comm, nullptr, nullptr, &prepared); });
  is(10, [&] { return tutti_prepare(comm, &request, nullptr, nullptr); });
  is(11, [&] { return tutti_prepared_start(nullptr, &work); });
  is(12, [&] { return tutti_group_end(); });
  is(13, [&] { return tutti_alloc(comm, absurd, &memory); });
  is(14, [&] { return tutti_alloc(comm, 16, nullptr); });
  is(15, [&] { return tutti_alloc(nullptr, 16, &memory); });
  is(16, [&] { return tutti_free(comm, bytes.data()); });
  is(17, [&] { return tutti_register(comm, nullptr, 100); });
  is(18, [&] { return tutti_register(comm, bytes.data(), absurd); });
  is(19, [&] { return tutti_deregister(comm, bytes.data()); });
  is(20, [&] { return tutti_split(nullptr, 0, 0, &other); });
  is(21, [&] { return tutti_split(comm, 0, 0, nullptr); });
  is(22, [&] { return tutti_init(nullptr, nullptr); });
  init.ranks = absurd % 2 == 0 ? -1 : INT32_MAX;
  is(23, [&] { return tutti_init(&other, &init); });
  init.ranks = 2;
  init.rank = absurd % 2 == 0 ? 2 : -1;
  is(24, [&] { return tutti_init(&other, &init); });
  init.size = SIZE_MAX;
  is(25, [&] { return tutti_init(&other, &init); });
  is(26, [&] { return tutti_abort(nullptr, nullptr); });
  EXPECT_EQ(work, nullptr);
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(prepared, nullptr);
  EXPECT_EQ(memory, nullptr);
  EXPECT_NE(tutti_error_name(static_cast<tutti_status_t>(absurd)), nullptr);
  tutti_work_free(nullptr);
  tutti_prepared_free(nullptr);
  tutti_destroy(nullptr);
  EXPECT_EQ(tutti_rank(nullptr), -1);
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
      } else if (kind < 87) {
        make_and_drop(draw(shared_, p_));
      } else {
        make_mistake(comm_, own_);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }

 private:
  // What was aborted is of no use any more.
  void renew() {
    tutti_destroy(comm_);
    ASSERT_EQ(tutti_split(world_, 0, 0, &comm_), TUTTI_OK) << tutti_error_text();
  }

  // Else an abort would hit calls before it, too: another rank may be done with them already.
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

  // The handle goes, the call goes on; a later one ends after it.
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

TEST_P(RandomClient, GetsAnErrorOrWhatItAskedFor) {
  ::setenv("TUTTI_TOKEN", "random_client", 1);
  ::setenv("TUTTI_LOG", "error", 1);
  ::setenv("TUTTI_TIMEOUT", "100", 1);  // for what would hang
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
