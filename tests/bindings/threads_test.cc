// Tests the C interface with threads: calls, aborts and destruction. Ranks are threads with threads
// of their own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "bindings/c/tutti.h"

namespace {

constexpr double kOwnTimeout = 30;  // in seconds; calls end before, for another reason

tutti_comm_t* join(int rank, int size, const std::string& name) {
  const std::string file = std::filesystem::path(::testing::TempDir()) /
                           ("tutti-" + name + "-" + std::to_string(::getpid()));
  tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
  options.rank = rank;
  options.ranks = size;
  options.rendezvous_file = file.c_str();
  tutti_comm_t* comm = nullptr;
  EXPECT_EQ(tutti_init(&comm, &options), TUTTI_OK) << tutti_error_text();
  return comm;
}

// The following functions are bodies of threads that make calls until the communicator is aborted.

void reduce_until_aborted(tutti_comm_t* comm) {
  std::array<int32_t, 64> values{};
  const tutti_buffer_t buffer = tutti_host(values.data(), values.size(), TUTTI_I32);
  tutti_status_t status = TUTTI_OK;
  while (status == TUTTI_OK) status = tutti_all_reduce(comm, buffer, buffer, TUTTI_SUM, nullptr);
  EXPECT_EQ(status, TUTTI_ABORTED) << tutti_error_text();
}

void wait_for_messages_that_never_come(tutti_comm_t* comm, std::atomic<int>& ended) {
  std::array<int32_t, 4> values{};
  std::array<tutti_work_t*, 4> works{};
  for (size_t i = 0; i < works.size(); ++i) {
    const tutti_status_t status = tutti_recv_async(comm, tutti_host(&values[i], 1, TUTTI_I32),
                                                   TUTTI_ANY_SOURCE, nullptr, &works[i]);
    if (status != TUTTI_OK) {
      EXPECT_EQ(status, TUTTI_ABORTED) << tutti_error_text();
      ++ended;
      continue;
    }
    const auto count = [](tutti_status_t failed, const char* text, void* context) {
      EXPECT_EQ(failed, TUTTI_ABORTED);
      EXPECT_NE(std::string(text).find("watchdog"), std::string::npos) << text;
      ++*static_cast<std::atomic<int>*>(context);
    };
    EXPECT_EQ(tutti_work_on_end(works[i], count, &ended), TUTTI_OK);
  }
  for (tutti_work_t* work : works) {
    if (work == nullptr) continue;
    EXPECT_EQ(tutti_wait(work), TUTTI_ABORTED);
    tutti_work_free(work);
  }
}

void use_memory_until_aborted(tutti_comm_t* comm) {
  constexpr size_t kBytes = 1 << 16;
  std::vector<std::byte> own(2 * kBytes);
  while (tutti_comm_status(comm) == TUTTI_OK) {
    void* data = nullptr;
    EXPECT_EQ(tutti_alloc(comm, kBytes, &data), TUTTI_OK) << tutti_error_text();
    EXPECT_EQ(tutti_register(comm, own.data(), own.size()), TUTTI_OK) << tutti_error_text();
    int found = 0;
    tutti_message_t message = TUTTI_MESSAGE_INIT;
    tutti_probe_now(comm, TUTTI_ANY_SOURCE, 7, &found, &message);
    EXPECT_EQ(tutti_deregister(comm, own.data()), TUTTI_OK) << tutti_error_text();
    EXPECT_EQ(tutti_free(comm, data), TUTTI_OK) << tutti_error_text();
  }
}

// One thread aborts while others are in calls, as a watchdog does. The communicator is destroyed
// once these calls have returned.
TEST(Threads, CallsEndWhenAnotherThreadAborts) {
  constexpr int kRanks = 2;
  constexpr int kRounds = 12;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([rank] {
      tutti_comm_t* const world = join(rank, kRanks, "threads");
      for (int round = 0; round < kRounds; ++round) {
        tutti_comm_t* comm = nullptr;
        ASSERT_EQ(tutti_split(world, 0, rank, &comm), TUTTI_OK) << tutti_error_text();
        ASSERT_EQ(tutti_barrier(world, nullptr), TUTTI_OK) << tutti_error_text();
        std::atomic<int> ended = 0;
        {
          std::vector<std::jthread> threads;
          threads.emplace_back([comm] { reduce_until_aborted(comm); });
          threads.emplace_back([comm, &ended] { wait_for_messages_that_never_come(comm, ended); });
          threads.emplace_back([comm] { use_memory_until_aborted(comm); });
          if (rank == round % kRanks) {
            threads.emplace_back([comm] { EXPECT_EQ(tutti_abort(comm, "watchdog"), TUTTI_OK); });
          }
        }
        tutti_destroy(comm);
        EXPECT_EQ(ended, 4) << "each receive ends once";
      }
      tutti_destroy(world);
    });
  }
}

// A call that waited for a work must not keep destroyed objects alive.
TEST(Threads, FollowedWorkDoesNotKeepTheCommunicator) {
  std::promise<void> checked;
  std::jthread other([&] {
    tutti_comm_t* const comm = join(1, 2, "followed");
    const int32_t value = 7;
    EXPECT_EQ(tutti_send(comm, tutti_host(&value, 1, TUTTI_I32), 0, nullptr), TUTTI_OK);
    EXPECT_EQ(tutti_barrier(comm, nullptr), TUTTI_OK) << tutti_error_text();
    tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout = kOwnTimeout;
    const tutti_status_t status = tutti_barrier(comm, &options);
    EXPECT_NE(status, TUTTI_OK);
    EXPECT_NE(status, TUTTI_TIMEOUT) << "rank 0 has left: " << tutti_error_text();
    checked.set_value();
    tutti_destroy(comm);
  });
  tutti_comm_t* const comm = join(0, 2, "followed");
  int32_t value = 0;
  tutti_work_t* received = nullptr;
  ASSERT_EQ(tutti_recv_async(comm, tutti_host(&value, 1, TUTTI_I32), 1, nullptr, &received),
            TUTTI_OK);
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.after = &received;
  options.after_count = 1;
  EXPECT_EQ(tutti_barrier(comm, &options), TUTTI_OK) << tutti_error_text();
  tutti_work_free(received);
  tutti_destroy(comm);
  checked.get_future().wait();
}

}  // namespace
