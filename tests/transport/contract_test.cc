// Tests that each transport fulfils its contract (transport/transport.h). Ranks are threads.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "tests/support/fabrics.h"
#include "tests/transport/groups.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the makers of groups

struct Kind {
  const char* name;
  Group (*make)(int ranks);
};

class Contract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    const std::string problem = lacks(GetParam().name);
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Contract,
                         ::testing::Values(Kind{"shm", make_shm}, Kind{"tcp", make_tcp},
                                           Kind{"near", make_near}, Kind{"mixed", make_mixed},
                                           Kind{"ucx", make_ucx}, Kind{"mixed_ucx", make_mixed_ucx},
                                           Kind{"rendezvous_ucx", make_rendezvous_ucx},
                                           Kind{"ofi", make_ofi}, Kind{"mixed_ofi", make_mixed_ofi},
                                           Kind{"rxm_ofi", make_rxm_ofi}),
                         [](const auto& info) { return info.param.name; });

// Returns the length of the longest message that can be sent to every peer.
size_t longest(const Transport& transport) { return transport.traits().limits.collective_bytes(); }

size_t longest_p2p(const Transport& transport) {
  const Limits& limits = transport.traits().limits;
  return std::min(limits.near.p2p_bytes, limits.far.p2p_bytes);
}

bool try_send(Transport& transport, std::vector<int> peers, int lane, uint32_t number, size_t bytes,
              int credit = 2) {
  std::byte* slot = transport.reserve(peers, lane, bytes, credit);
  if (slot == nullptr) return false;
  std::memset(slot, static_cast<int>(number & 0xff), bytes);
  transport.commit({.call = number, .bytes = static_cast<uint32_t>(bytes)});
  return true;
}

void expect_message(Transport& transport, int peer, int lane, uint32_t number, size_t bytes) {
  const MessageHeader* header = nullptr;
  while ((header = transport.front(peer, lane)) == nullptr) transport.progress();
  ASSERT_EQ(header->call, number);
  ASSERT_EQ(header->bytes, bytes);
  if (bytes > 0 && number % 2 == 0) {  // uses the message in place
    const std::byte* payload = nullptr;
    while ((payload = transport.payload(peer, lane)) == nullptr) transport.progress();
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(payload[i], std::byte(number & 0xff)) << i;
  } else {
    std::vector<std::byte> got(bytes);
    while (!transport.read(peer, lane, got, Store::cached)) transport.progress();
    ASSERT_EQ(got, std::vector<std::byte>(bytes, std::byte(number & 0xff)));
  }
  transport.release(peer, lane);
}

// For tests on one thread: progresses both ranks until the next message from rank 0 has reached
// `rank`.
void carry(Group& group, int rank, int lane) {
  while (group[rank]->front(0, lane) == nullptr) {
    group[0]->progress();
    group[rank]->progress();
  }
}

TEST_P(Contract, MessagesComeInOrderOnEachLane) {
  Group group = GetParam().make(2);
  const std::array<size_t, 5> sizes = {0, 24, 25, 1000, longest(*group[0])};
  constexpr uint32_t kMessages = 200;
  std::thread sender([&] {
    for (uint32_t i = 1; i <= kMessages; ++i) {
      for (int lane = 0; lane < group[0]->lanes(); ++lane) {
        while (!try_send(*group[0], {1}, lane, i, sizes[i % sizes.size()])) group[0]->progress();
      }
    }
    while (!group[0]->collectives_sent()) group[0]->progress();
  });
  for (uint32_t i = 1; i <= kMessages; ++i) {
    for (int lane = group[1]->lanes() - 1; lane >= 0; --lane) {
      expect_message(*group[1], 0, lane, i, sizes[i % sizes.size()]);
    }
  }
  sender.join();
}

TEST_P(Contract, OneMessageForSeveralReaders) {
  Group group = GetParam().make(4);
  std::vector<std::thread> readers;
  for (int r = 1; r < 4; ++r) {
    readers.emplace_back([&, r] {
      for (uint32_t i = 1; i <= 50; ++i) expect_message(*group[r], 0, 0, i, 4000);
    });
  }
  for (uint32_t i = 1; i <= 50; ++i) {
    while (!try_send(*group[0], {1, 2, 3}, 0, i, 4000)) group[0]->progress();
  }
  while (!group[0]->collectives_sent()) group[0]->progress();
  for (std::thread& reader : readers) reader.join();
}

TEST_P(Contract, ASlowReaderDelaysNoOtherReader) {
  Group group = GetParam().make(3);
  // Rank 1 reads nothing. Its connection fills up, at the latest when its credit is exhausted.
  uint32_t sent = 0;
  for (int tries = 0; tries < 1000; ++tries) {
    sent += try_send(*group[0], {1}, 0, sent + 1, longest(*group[0])) ? 1 : 0;
    group[0]->progress();
  }
  EXPECT_GE(sent, 1);
  EXPECT_LT(sent, 1000);
  for (uint32_t i = 1; i <= 100; ++i) {
    while (!try_send(*group[0], {2}, 0, i, 3000)) {
      group[0]->progress();
      group[2]->progress();  // reports that there is room
    }
    carry(group, 2, 0);
    expect_message(*group[2], 0, 0, i, 3000);
  }
  std::thread drain([&] {
    for (uint32_t i = 1; i <= sent; ++i) {
      expect_message(*group[1], 0, 0, i, longest(*group[1]));
    }
  });
  while (!group[0]->collectives_sent()) group[0]->progress();
  drain.join();
}

TEST_P(Contract, PointToPointHasItsOwnLaneAndSlots) {
  Group group = GetParam().make(2);
  const int p2p = group[0]->lanes();
  // Collectives have their own slots, however many point-to-point messages wait.
  while (try_send(*group[0], {1}, p2p, 7, longest_p2p(*group[0]))) {
    if (!group[0]->p2p_sent(1)) break;
  }
  for (uint32_t i = 1; i <= 50; ++i) {
    while (!try_send(*group[0], {1}, 0, i, 2000)) {
      group[0]->progress();
      group[1]->progress();
    }
    carry(group, 1, 0);
    expect_message(*group[1], 0, 0, i, 2000);
  }
  std::thread reader([&] { expect_message(*group[1], 0, p2p, 7, longest_p2p(*group[1])); });
  while (!group[0]->p2p_sent(1)) group[0]->progress();
  reader.join();
}

TEST_P(Contract, ReservingAgainCancelsTheFirstReservation) {
  Group group = GetParam().make(2);
  const std::vector<int> peers = {1};
  for (int i = 0; i < 1000; ++i) ASSERT_NE(group[0]->reserve(peers, 0, 100, 1), nullptr) << i;
  ASSERT_TRUE(try_send(*group[0], {1}, 0, 3, 100, 1));
  carry(group, 1, 0);
  expect_message(*group[1], 0, 0, 3, 100);
}

TEST_P(Contract, SleepersAreWokenByMessagesAndByRoom) {
  Group group = GetParam().make(2);
  constexpr uint32_t kMessages = 300;
  // All messages have been sent. A sleep that ends by timeout has therefore missed an event.
  const auto sleep = [&](int rank, const std::function<bool()>& moved) {
    WaitSet& set = *group.sets[rank];
    Transport& transport = *group[rank];
    set.begin();
    set.choose(transport.traits().needs_descriptors);
    transport.arm(set);
    const bool stirs = moved();
    if (!stirs) {
      transport.watch(set);
      EXPECT_TRUE(set.sleep(std::chrono::seconds(30))) << "a wake was lost";
    }
    transport.disarm();
    set.end();
    return stirs;
  };
  std::thread sender([&] {
    for (uint32_t i = 1; i <= kMessages; ++i) {
      const auto send = [&] {
        group[0]->progress();
        return try_send(*group[0], {1}, 0, i, 9000, 1);
      };
      while (!send() && !sleep(0, send)) {
      }
    }
    while (!group[0]->collectives_sent()) group[0]->progress();
  });
  for (uint32_t i = 1; i <= kMessages; ++i) {
    const auto arrived = [&] { return group[1]->front(0, 0) != nullptr; };
    while (!arrived() && !sleep(1, arrived)) {
    }
    expect_message(*group[1], 0, 0, i, 9000);
  }
  sender.join();
}

// A single wake() must be enough at any time: before the sleep, as it begins, and during it.
TEST_P(Contract, WakeEndsASleep) {
  constexpr int kTurns = 200;
  Group group = GetParam().make(2);
  WaitSet& set = *group.sets[0];
  std::atomic<int> armed{0};
  std::thread waker([&] {
    for (int turn = 1; turn <= kTurns; ++turn) {
      while (armed < turn) std::this_thread::yield();
      for (int i = 0; i < turn * 100; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      set.wake();
    }
  });
  for (int turn = 1; turn <= kTurns; ++turn) {
    set.begin();
    set.choose(group[0]->traits().needs_descriptors);
    group[0]->arm(set);
    group[0]->watch(set);
    armed = turn;
    EXPECT_TRUE(set.sleep(std::chrono::hours(1)));
    group[0]->disarm();
    set.end();
  }
  waker.join();
}

// A peer has left. However late the reader looks, it must see the end of the connection only after
// the peer's last byte.
TEST_P(Contract, AConnectionEndsAfterItsLastMessage) {
  Group group = GetParam().make(2);
  const int p2p = group[0]->lanes();
  ASSERT_TRUE(group[1]->ended(0, 0)) << "nothing was sent";
  for (uint32_t i = 1; i <= 2; ++i) {
    while (!try_send(*group[0], {1}, 0, i, longest(*group[0]))) group[0]->progress();
    while (!try_send(*group[0], {1}, p2p, i, 100)) group[0]->progress();
  }
  group[0]->end_sending();
  std::atomic<bool> is_known{false};
  std::thread leaving([&] {
    while (!group[0]->collectives_sent() || !group[0]->p2p_sent(1)) group[0]->progress();
    group.let_know(0);
    is_known = true;
  });
  group[1]->progress();
  for (uint32_t i = 1; i <= 2; ++i) {
    // Over a fabric, rank 0 cannot leave before the message has been read.
    while (!group.providers.empty() && group[1]->front(0, 0) == nullptr) group[1]->progress();
    EXPECT_FALSE(group[1]->ended(0, 0)) << i;
    EXPECT_FALSE(group[1]->ended(0, p2p)) << i;
    expect_message(*group[1], 0, 0, i, longest(*group[0]));
    expect_message(*group[1], 0, p2p, i, 100);
  }
  while (!is_known) group[1]->progress();
  leaving.join();
  for (const int lane : {0, p2p}) {
    EXPECT_EQ(group[1]->front(0, lane), nullptr);
    EXPECT_TRUE(group[1]->ended(0, lane));
  }
}

TEST_P(Contract, NothingIsWrittenAfterRevoke) {
  Group group = GetParam().make(2);
  *group.may_lose = true;
  const size_t bytes = longest(*group[0]);
  while (!try_send(*group[0], {1}, 0, 1, bytes)) group[0]->progress();
  carry(group, 1, 0);
  std::vector<std::byte> destination(bytes);
  group[1]->read(0, 0, destination, Store::cached);  // the read may be complete or in flight
  group[1]->revoke();
  const std::vector<std::byte> own(bytes, std::byte{0x55});
  destination = own;
  for (int i = 0; i < 10'000; ++i) {
    group[0]->progress();
    group[1]->progress();
  }
  EXPECT_EQ(destination, own);
}

class Placement : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Hosts, Placement,
                         ::testing::Values(std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1},
                                           std::vector{0, 0, 0, 1}, std::vector{0, 1, 1, 1},
                                           std::vector{0, 1, 2}, std::vector{0, 0, 1, 2, 2}),
                         [](const auto& info) {
                           std::string name = "at";
                           for (const int host : info.param) name += cat(host);
                           return name;
                         });

// Each rank in turn sends a message to all others, and messages to each of them.
TEST_P(Placement, EveryRankReachesEveryOther) {
  Group group = make_placed(GetParam());
  const auto ranks = static_cast<int>(GetParam().size());
  constexpr uint32_t kMessages = 20;
  size_t p2p_bytes = longest_p2p(*group[0]);  // the limit that all ranks have in common
  for (const auto& transport : group.transports) {
    p2p_bytes = std::min(p2p_bytes, longest_p2p(*transport));
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Transport& own = *group[r];
      for (int from = 0; from < ranks; ++from) {
        std::vector<int> others;
        for (int peer = 0; peer < ranks; ++peer) {
          if (peer != from) others.push_back(peer);
        }
        for (uint32_t i = 1; i <= kMessages; ++i) {
          if (r != from) {
            expect_message(own, from, 0, 2 * i, 3000);
            expect_message(own, from, own.lanes(), 2 * i + 1, p2p_bytes);
            continue;
          }
          while (!try_send(own, others, 0, 2 * i, 3000)) own.progress();
          for (const int peer : others) {
            while (!try_send(own, {peer}, own.lanes(), 2 * i + 1, p2p_bytes)) own.progress();
          }
        }
        const auto all_sent = [&] {
          return own.collectives_sent() &&
                 std::ranges::all_of(others, [&](int peer) { return own.p2p_sent(peer); });
        };
        while (r == from && !all_sent()) own.progress();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Tcp, AConnectionCutInAMessageIsReportedOnce) {
  auto wires = std::make_shared<Wires>();
  auto group = make_wired(2, wires);
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  group[1]->accept(0, 0, 0, Fd(pair[1]));
  Fd peer(pair[0]);
  const std::array<char, 8> part = {'T', 'U', 'T', 'I'};
  ASSERT_EQ(::send(peer.get(), part.data(), part.size(), 0), 8);
  EXPECT_EQ(group[1]->front(0, 0), nullptr);
  EXPECT_EQ(wires->lost, 0);
  peer.reset();
  EXPECT_EQ(group[1]->front(0, 0), nullptr);
  EXPECT_EQ(group[1]->front(0, 0), nullptr);
  EXPECT_EQ(wires->lost, 1);
}

TEST(Tcp, GarbageIsNoMessage) {
  auto wires = std::make_shared<Wires>();
  auto group = make_wired(2, wires);
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  group[1]->accept(0, 0, 0, Fd(pair[1]));
  const Fd stranger(pair[0]);
  const std::string garbage(4096, 'G');
  ASSERT_EQ(::send(stranger.get(), garbage.data(), garbage.size(), 0), 4096);
  EXPECT_EQ(group[1]->front(0, 0), nullptr);
  EXPECT_EQ(wires->corrupted, 1);
  EXPECT_EQ(wires->lost, 0);
}

TEST(Shm, GeometryLeavesRoomForEveryReader) {
  for (int ranks = 1; ranks <= 128; ++ranks) {
    const shm::Geometry geometry(ranks, ranks);
    EXPECT_GE(geometry.slots, ranks - 1);
    EXPECT_LE(geometry.total_bytes(), shm::most_bytes(ranks)) << ranks;
    EXPECT_EQ(geometry.slot_bytes % 64, 0);
    EXPECT_EQ(geometry.p2p_slot_bytes % 64, 0);
    EXPECT_LE(geometry.slot(ranks - 1, geometry.slots - 1) + geometry.slot_bytes,
              geometry.p2p_slot(ranks - 1, 0, 0));
    EXPECT_LE(
        geometry.p2p_slot(ranks - 1, ranks - 1, geometry.p2p_slots - 1) + geometry.p2p_slot_bytes,
        geometry.total_bytes());
  }
}

}  // namespace
}  // namespace tutti
