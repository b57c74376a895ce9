// Tests threads that use an object while others abort and destroy it.
#include "bindings/use_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace tutti {
namespace {

TEST(UseGate, RefusesUsesOnceItIsClosed) {
  UseGate gate;
  EXPECT_TRUE(gate.is_open());
  EXPECT_TRUE(gate.enter());
  int destroyed = 0;
  gate.close([&] { ++destroyed; });
  gate.close([&] { ++destroyed; });
  EXPECT_EQ(destroyed, 1);
  EXPECT_FALSE(gate.is_open());
  EXPECT_FALSE(gate.enter());
  EXPECT_FALSE(gate.enter_until_closed());
}

TEST(UseGate, CloseWaitsForUsesAndRefusesOthers) {
  UseGate gate;
  auto inside = std::make_unique<UseGate::Use>(gate.enter());
  std::atomic<bool> destroyed = false;
  std::jthread closer([&] { gate.close([&] { destroyed = true; }); });
  while (gate.is_open()) std::this_thread::yield();
  EXPECT_FALSE(gate.enter());
  EXPECT_FALSE(destroyed);
  inside.reset();
  closer.join();
  EXPECT_TRUE(destroyed);
}

// A watchdog aborts while the destroying thread waits for a hanging call.
TEST(UseGate, AnAbortReachesTheCallThatACloseWaitsFor) {
  UseGate gate;
  std::promise<void> aborted;
  std::latch is_inside(1);
  std::jthread caller([&, inside = gate.enter()] {
    is_inside.count_down();
    aborted.get_future().wait();
  });
  is_inside.wait();
  std::atomic<bool> destroyed = false;
  std::jthread closer([&] { gate.close([&] { destroyed = true; }); });
  while (gate.is_open()) std::this_thread::yield();
  {
    const UseGate::Use inside = gate.enter_until_closed();
    ASSERT_TRUE(inside);
    EXPECT_FALSE(destroyed);
    aborted.set_value();
  }
  caller = {};  // joins, and ends the caller's use
  closer.join();
  EXPECT_TRUE(destroyed);
}

TEST(UseGate, AbortsUsesThatTakeTooLong) {
  UseGate gate;
  std::promise<void> aborted;
  std::jthread caller([&, inside = gate.enter()] { aborted.get_future().wait(); });
  bool destroyed = false;
  gate.close(
      std::chrono::milliseconds(1), [&] { aborted.set_value(); }, [&] { destroyed = true; });
  EXPECT_TRUE(destroyed);
}

TEST(UseGate, DoesNotAbortWithoutUses) {
  UseGate gate;
  bool destroyed = false;
  gate.close(
      std::chrono::seconds(0), [] { ADD_FAILURE(); }, [&] { destroyed = true; });
  EXPECT_TRUE(destroyed);
}

// A late release must find either the whole object or none.
TEST(UseGate, LateUseWaitsForTheDestruction) {
  UseGate gate;
  std::latch is_ending(1);
  std::promise<void> proceed;
  std::atomic<bool> destroyed = false;
  std::jthread closer([&] {
    gate.close([&] {
      is_ending.count_down();
      proceed.get_future().wait();
      destroyed = true;
    });
  });
  is_ending.wait();
  std::jthread late([&] {
    EXPECT_FALSE(gate.enter_until_closed());
    EXPECT_TRUE(destroyed);
  });
  std::jthread second([&] {
    gate.close([] { ADD_FAILURE(); });
    EXPECT_TRUE(destroyed);
  });
  proceed.set_value();
}

// The thread and address sanitizers detect uses of a destroyed object.
TEST(UseGate, ConcurrentCallsAbortsAndClosesEnd) {
  constexpr int kRounds = 200;
  constexpr int kThreads = 3;
  for (int round = 0; round < kRounds; ++round) {
    UseGate gate;
    auto object = std::make_unique<std::atomic<int>>(0);
    std::atomic<bool> aborted = false;
    std::latch begin(2 * kThreads + 1);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        begin.arrive_and_wait();
        while (const UseGate::Use inside = gate.enter()) {
          ++*object;
          if (aborted) return;
        }
      });
      threads.emplace_back([&, i] {
        begin.arrive_and_wait();
        if (i == 0) {
          if (const UseGate::Use inside = gate.enter_until_closed()) {
            ++*object;
            aborted = true;
          }
        } else {
          gate.close([&] { object.reset(); });
        }
      });
    }
    begin.arrive_and_wait();
    threads.clear();
    EXPECT_EQ(object, nullptr);
  }
}

}  // namespace
}  // namespace tutti
