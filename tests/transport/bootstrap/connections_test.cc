// Tests data connections, the classes that establish and keep them, and destroyed communicators.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/client_table.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/handshake/acceptor.h"
#include "transport/bootstrap/handshake/connector.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kWorld = 1;

void expect_connected(const ByteStream& a, const ByteStream& b) {
  ASSERT_EQ(::write(a.get(), "x", 1), 1);
  ::fcntl(b.get(), F_SETFL, 0);  // the test needs a blocking socket
  char byte = 0;
  ASSERT_EQ(::read(b.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(Connections, ReachTheClientEvenIfItAttachesLater) {
  Barrier step(2);
  std::vector<ByteStream> opened(2);
  run_ranks(2, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (control->rank() == 1) {
      AttachedClient client(*control, kWorld, everybody(2));
      control->open_connection(kWorld, 0, 0, {});
      opened[0] = client->wait_for_opened(0, 0);
      step.wait();
      step.wait();
      control->open_connection(kWorld, 0, 5, {});
      opened[1] = client->wait_for_opened(0, 5);
      step.wait();
    } else {
      step.wait();  // the first connection arrives before the client is attached
      AttachedClient client(*control, kWorld, everybody(2));
      step.wait();
      step.wait();
      expect_connected(opened[0], client->wait_for_connection(1, 0));
      expect_connected(opened[1], client->wait_for_connection(1, 5));
    }
  });
}

TEST(Connections, SeveralLanesConnectToSeveralPeersAtOnce) {
  constexpr int kRanks = 4;
  constexpr int kLanes = 8;
  Barrier done(kRanks);
  run_ranks(kRanks, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient client(*control, kWorld, everybody(kRanks));
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer != job.rank) control->open_connection(kWorld, peer, lane, {});
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == job.rank) continue;
        ByteStream opened = client->wait_for_opened(peer, lane);
        ByteStream accepted = client->wait_for_connection(peer, lane);
        expect_connected(opened, accepted);
      }
    }
    done.wait();
  });
}

// No connection to a rank that has left is established, and the client is not notified of a death.
TEST(Connections, ConnectingToARankThatHasLeftEnds) {
  run_ranks(2, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (control->rank() == 1) return;
    AttachedClient client(*control, kWorld, everybody(2));
    const Deadline deadline = Deadline::after(kPatience);
    while (!control->has_left(1) && !deadline.passed()) std::this_thread::yield();
    ASSERT_TRUE(control->has_left(1));
    control->open_connection(kWorld, 1, 0, {});
    control->ask(kWorld, 0, 1);  // commands are executed in order
    client->wait_for_answer(0, 1);
    EXPECT_FALSE(client->aborted());
  });
}

TEST(Detached, DestroyedCommunicatorsAnswerWithNothingAndRefuseConnections) {
  Barrier step(2);
  run_ranks(2, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (control->rank() == 1) {
      { const AttachedClient gone(*control, kWorld, everybody(2)); }
      step.wait();
      step.wait();
      return;
    }
    AttachedClient client(*control, kWorld, everybody(2));
    step.wait();
    control->ask(kWorld, 1, 4);
    EXPECT_EQ(client->wait_for_answer(1, 4), "");
    control->open_connection(kWorld, 1, 0, {});
    const ByteStream socket = client->wait_for_opened(1, 0);
    std::byte byte{};
    EXPECT_EQ(
        bootstrap::read_exactly(socket.get(), std::span(&byte, 1), Deadline::after(kPatience)),
        bootstrap::Transfer::closed);
    step.wait();
  });
}

TEST(Kept, ConnectionsSurviveAbortsOfOtherCommunicators) {
  constexpr uint64_t kStrange = 1000;
  bootstrap::ClientTable table(2);
  table.connection(kWorld, 1, 3, 0, Fd(::dup(STDERR_FILENO)));
  EXPECT_FALSE(table.question(kWorld, 1, 5).has_value());
  for (uint64_t i = 0; i < 1000; ++i) table.abort(kStrange + i, Error(ErrorCode::aborted, "no"));
  RecordingClient client;
  const auto answers = table.attach(kWorld, everybody(2), &client);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].call, 5U);
  EXPECT_TRUE(client.wait_for_connection(1, 3));
  EXPECT_FALSE(client.aborted());
}

TEST(Kept, DropsConnectionsOfDestroyedCommunicators) {
  bootstrap::ClientTable table(2);
  RecordingClient world;
  table.attach(kWorld, everybody(2), &world);
  for (uint64_t id = 2; id < 100'000; ++id) {
    RecordingClient client;
    table.expect();
    EXPECT_FALSE(table.question(id, 1, 5).has_value()) << "it may come";
    EXPECT_EQ(table.attach(id, everybody(2), &client).size(), 1U);
    EXPECT_TRUE(table.stop_expecting().empty());
    table.detach(id);
    const auto answer = table.question(id, 1, 6);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->text, "");
    table.abort(id, Error(ErrorCode::aborted, "late"));
    table.connection(id, 1, 0, 0, Fd(::dup(STDERR_FILENO)));
    ASSERT_EQ(table.entries(), 1U) << "the world's";
  }
}

TEST(Kept, KeepsConnectionsWhileACommunicatorIsExpected) {
  bootstrap::ClientTable table(2);
  RecordingClient world;
  table.attach(kWorld, everybody(2), &world);
  table.expect();
  table.expect();  // two threads call split()
  EXPECT_FALSE(table.question(7, 1, 5).has_value());
  table.connection(7, 1, 0, 0, Fd(::dup(STDERR_FILENO)));
  table.abort(7, Error(ErrorCode::aborted, "no"));
  EXPECT_TRUE(table.stop_expecting().empty());
  EXPECT_EQ(table.entries(), 4U);
  const auto answers = table.stop_expecting();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].call, 5U);
  EXPECT_EQ(answers[0].text, "");
  EXPECT_EQ(table.entries(), 1U);
}

// One peer refuses the connection, and another one does not exist. The connector must report both.
TEST(Connector, ReportsFailuresAndContinues) {
  using namespace bootstrap;
  const Fd listener = listen_on(resolve("127.0.0.1", 0).front());
  Acceptor acceptor(Fd(::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0)), "token", 3, 1);
  acceptor.set_session_key("key");
  PeerInfo peer;
  peer.address = "127.0.0.1";
  peer.port = local_address(listener.get()).port();
  PeerInfo nobody = peer;
  {
    const Fd closed = listen_on(resolve("127.0.0.1", 0).front());
    nobody.port = local_address(closed.get()).port();
  }
  Connector right("key", 2);
  Connector wrong("another key", 2);
  const Hello hello{.purpose = Purpose::data, .rank = 0, .size = 3, .communicator = 9, .lane = 4};
  right.start(nobody, 2, hello, "rank 2");
  right.start(peer, 1, hello, "rank 1");
  wrong.start(peer, 1, hello, "rank 1");
  Hello dropped = hello;
  dropped.communicator = 10;
  right.start(peer, 1, dropped, "rank 1");
  right.drop(10);

  std::vector<std::string> opened;
  std::vector<std::string> failed;
  const auto on_opened = [&](uint64_t communicator, int rank, int lane, ByteStream) {
    opened.push_back(cat(communicator, " ", rank, " ", lane));
  };
  const auto on_failed = [&](uint64_t communicator, int rank, const Error& error) {
    failed.push_back(cat(communicator, " ", rank, " ", error.what()));
  };
  PollSet set;
  const Deadline deadline = Deadline::after(kPatience);
  while (opened.size() + failed.size() < 3 && !deadline.passed()) {
    right.watch(set, on_opened, on_failed);
    wrong.watch(set, on_opened, on_failed);
    acceptor.watch(
        set, [](const Hello&) { return Decision::accept; }, [](const Hello&, ByteStream) {});
    set.wake_at(Clock::now() + std::chrono::milliseconds(50));
    set.run();
  }
  EXPECT_THAT(opened, ::testing::ElementsAre("9 1 4"));
  EXPECT_THAT(failed, ::testing::UnorderedElementsAre(
                          HasSubstr("9 2 connect to rank 2 at 127.0.0.1:"),
                          HasSubstr("refused this rank: the two have different tokens")));
}

// More strangers are connected than the acceptor keeps, and all are silent. A newcomer must be
// admitted long before the first of them times out. The test counts turns instead of time, so that
// a slow machine does not fail.
TEST(Acceptor, LetsNewcomersInPastACrowdOfStrangers) {
  using namespace bootstrap;
  constexpr rlim_t kCrowd = 600;
  constexpr int kTurns = 200;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 3 * kCrowd) GTEST_SKIP() << "too few descriptors are allowed here";
  limit.rlim_cur = std::max(limit.rlim_cur, 3 * kCrowd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);

  Fd listener = listen_on(resolve("127.0.0.1", 0).front());
  const SocketAddress address = local_address(listener.get());
  Acceptor acceptor(std::move(listener), "token", 2);
  acceptor.set_session_key("key");
  std::vector<Fd> crowd(kCrowd);
  for (Fd& stranger : crowd) {
    ASSERT_EQ(try_connect(address, Deadline::after(kPatience), stranger), 0);
  }
  PeerInfo peer;
  peer.address = address.host();
  peer.port = address.port();
  Connector connector("key", 2);
  connector.start(peer, 0, {.purpose = Purpose::data, .rank = 1, .size = 2}, "rank 0");

  PollSet set;
  bool opened = false;
  for (int turn = 0; turn < kTurns && !opened; ++turn) {
    acceptor.watch(
        set, [](const Hello&) { return Decision::accept; }, [](const Hello&, ByteStream) {});
    connector.watch(
        set, [&](uint64_t, int, int, ByteStream) { opened = true; },
        [](uint64_t, int, const Error& error) { ADD_FAILURE() << error.what(); });
    set.wake_at(Clock::now() + std::chrono::milliseconds(10));
    set.run();
  }
  EXPECT_TRUE(opened);
}

}  // namespace
}  // namespace tutti::testing
