// Tests messages that arrive before their receives: how many bytes are buffered, and that no call
// waits forever.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

constexpr int kEarly = 1;  // tag of messages that arrive before their receives
constexpr int kWanted = 2;
constexpr size_t kBytes = size_t{1} << 20;
constexpr size_t kMessages = 32;
constexpr int kTurns = 500;
constexpr size_t kMostKept = 8;  // number of messages that fit the limit

class Unexpected : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    settings().set("TUTTI_TRANSPORT", GetParam());
    settings().set("TUTTI_UNEXPECTED_BYTES", std::to_string(kMostKept * kBytes));
  }
  void TearDown() override {
    settings().set("TUTTI_TRANSPORT", "auto");
    settings().set("TUTTI_UNEXPECTED_BYTES", "64M");
  }
};

INSTANTIATE_TEST_SUITE_P(Both, Unexpected, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

struct Sent {
  std::vector<std::vector<uint8_t>> payloads;
  std::vector<Work> works;
  size_t taken() {
    return static_cast<size_t>(std::ranges::count_if(
        works, [](Work& work) { return work.poll() == WorkState::complete; }));
  }
  void wait() {
    for (Work& work : works) work.wait();
  }
};

Sent send_early(Communicator& comm) {
  Sent sent;
  for (size_t i = 0; i < kMessages; ++i) {
    sent.payloads.emplace_back(kBytes, static_cast<uint8_t>(i + 1));
  }
  sent.payloads.push_back({99});
  for (const std::vector<uint8_t>& payload : sent.payloads) {
    const bool last = &payload == &sent.payloads.back();
    sent.works.push_back(
        comm.send_async(const_buffer_of<uint8_t>(payload), 0, {.tag = last ? kWanted : kEarly}));
  }
  return sent;
}

void receive_early(Communicator& comm) {
  std::vector<uint8_t> payload(kBytes);
  for (size_t i = 0; i < kMessages; ++i) {
    comm.recv(buffer_of(std::span(payload)), 1, {.tag = kEarly});
    EXPECT_EQ(payload, std::vector<uint8_t>(kBytes, static_cast<uint8_t>(i + 1)));
  }
}

// If no thread waits for a receive, a rank does not buffer everything that is sent to it; the
// sender blocks at the limit. Data in the sockets of the system count as received.
TEST_P(Unexpected, MessagesForAnIdleReceiveAreKeptUpToALimit) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    Communicator beside = world.duplicate();
    if (world.rank() == 0) {
      uint8_t wanted = 0;
      Work receive = world.recv_async(buffer_of(std::span(&wanted, 1)), 1, {.tag = kWanted});
      for (int turn = 0; turn < kTurns; ++turn) beside.barrier();
      receive.wait();
      EXPECT_EQ(wanted, 99);
      receive_early(world);
      beside.barrier();
      return;
    }
    constexpr size_t kInSockets = 12;
    Sent sent = send_early(world);
    size_t taken = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      taken = sent.taken();
      beside.barrier();
    }
    EXPECT_LE(taken, kMostKept + (GetParam() == "tcp" ? kInSockets : 1));
    sent.wait();
    beside.barrier();
  });
}

// Ways in which the receiver obtains the message.
enum class Way : uint8_t { waits, polls, probes, awaits_message, follows, has_callback };

void get_wanted(Communicator& world, Communicator& beside, Way way) {
  uint8_t wanted = 0;
  const Buffer buffer = buffer_of(std::span(&wanted, 1));
  if (way == Way::probes) {
    while (!world.probe(1, kWanted)) std::this_thread::yield();
  }
  if (way == Way::awaits_message) world.await_message(1, kWanted);
  Work receive = world.recv_async(buffer, 1, {.tag = kWanted});
  if (way == Way::polls) {
    while (!receive.test()) std::this_thread::yield();
  }
  bool called = false;
  if (way == Way::has_callback) {
    receive.on_end([&](const Error* error) { called = error == nullptr; });
    Communicator self = world.create(std::vector<int>{0});
    Work other = self.recv_async({}, 0);
    while (!called) {
      other.poll();
      std::this_thread::yield();
    }
  }
  if (way == Way::follows) {
    Communicator self = world.create(std::vector<int>{0});
    const std::vector<Work> after = {receive};
    self.barrier({.after = after});
  } else {
    receive.wait();
  }
  EXPECT_EQ(wanted, 99);
  beside.barrier();
}

TEST_P(Unexpected, DoNotBlockAMessageForWhichARankWaits) {
  for (const Way way : {Way::waits, Way::polls, Way::probes, Way::awaits_message, Way::follows,
                        Way::has_callback}) {
    SCOPED_TRACE(static_cast<int>(way));
    testing::run_ranks(2, [way](const Job& job) {
      Communicator world = Communicator::init(job);
      Communicator beside = world.duplicate();
      if (world.rank() == 0) {
        get_wanted(world, beside, way);
        receive_early(world);
      } else {
        Sent sent = send_early(world);
        beside.barrier();
        sent.wait();
      }
    });
  }
}

// The limit applies to buffered bytes. A message that is received makes room for others.
TEST_P(Unexpected, MakeRoomWhenTheyAreReceived) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    if (world.rank() == 0) {
      uint8_t wanted = 0;
      Work receive = world.recv_async(buffer_of(std::span(&wanted, 1)), 1, {.tag = kWanted});
      receive_early(world);
      while (!receive.test()) std::this_thread::yield();
      EXPECT_EQ(wanted, 99);
    } else {
      send_early(world).wait();
    }
  });
}

}  // namespace
}  // namespace tutti
