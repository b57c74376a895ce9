// Tests aborts while a communicator is being created.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

constexpr int kRanks = 3;
constexpr int kTrials = 60;

using Make = std::function<Communicator(Communicator&)>;

// One rank aborts the communicator at a random point while another one is being created. All ranks
// must report the abort. None may be reported as missing, which would be an Error(timeout) after
// five seconds.
void expect_aborted_or_made(const Make& make) {
  settings().set("TUTTI_TIMEOUT", "5");
  testing::run_ranks(kRanks, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    std::mt19937 random(5);  // the same numbers on all ranks
    for (int trial = 0; trial < kTrials; ++trial) {
      Communicator parent = world.duplicate();
      world.barrier();  // all ranks have the new communicator
      const bool aborts = static_cast<int>(random() % kRanks) == world.rank();
      const std::chrono::microseconds delay(random() % 600);
      std::jthread killer;
      if (aborts) {
        killer = std::jthread([&parent, delay] {
          std::this_thread::sleep_for(delay);
          parent.abort("a rank gives up");
        });
      }
      try {
        const Communicator made = make(parent);
        EXPECT_EQ(made.size(), kRanks);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::aborted) << "trial " << trial << ": " << error.what();
      }
      if (killer.joinable()) killer.join();
      world.barrier();
    }
  });
  settings().set("TUTTI_TIMEOUT", "300");
}

TEST(Making, AnAbortEndsSplitOnAllRanks) {
  expect_aborted_or_made([](Communicator& parent) { return parent.split(0); });
}

TEST(Making, AnAbortEndsCreateOnAllRanks) {
  expect_aborted_or_made([](Communicator& parent) {
    return parent.create(std::vector<int>{0, 1, 2});
  });
}

// A rank that already has the new communicator is notified if another rank cannot create it.
TEST(Making, ARankThatHasItNoticesThatAnotherHasNot) {
  settings().set("TUTTI_TIMEOUT", "5");
  testing::run_ranks(kRanks, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    for (int trial = 0; trial < 30; ++trial) {
      Communicator parent = world.duplicate();
      world.barrier();
      std::jthread killer;
      if (world.rank() == trial % kRanks) {
        killer = std::jthread([&parent] { parent.abort("a rank gives up"); });
      }
      try {
        Communicator made = parent.split(0);
        made.barrier();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::aborted) << "trial " << trial << ": " << error.what();
      }
      if (killer.joinable()) killer.join();
      world.barrier();
    }
  });
  settings().set("TUTTI_TIMEOUT", "300");
}

}  // namespace
}  // namespace tutti
