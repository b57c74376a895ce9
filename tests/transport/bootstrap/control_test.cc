// The control channel among ranks that are threads.
#include "transport/bootstrap/control.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <tuple>

#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/acceptor.h"
#include "transport/bootstrap/client_table.h"
#include "transport/bootstrap/connector.h"
#include "transport/bootstrap/socket.h"
#include "transport/bootstrap/tree.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kWorld = 1;

TEST(Tree, RoutesAlongParentsAndChildren) {
  for (const int fanout : {1, 2, 3, 32}) {
    for (int from = 0; from < 40; ++from) {
      for (int to = 0; to < 40; ++to) {
        int at = from;
        int hops = 0;
        while (at != to && hops <= 80) {
          const bootstrap::Tree tree{.rank = at, .size = 40, .fanout = fanout};
          const int next = tree.next_hop(to);
          const bootstrap::Tree there{.rank = next, .size = 40, .fanout = fanout};
          ASSERT_TRUE(tree.is_child(next) || there.is_child(at)) << at << " -> " << next;
          at = next;
          ++hops;
        }
        ASSERT_EQ(at, to) << "from " << from << " with fanout " << fanout;
      }
    }
  }
}

class WorldTest : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  void run(const std::function<void(Control&)>& body) const {
    run_ranks(size(), [&](Job job) {
      job.fanout = std::get<1>(GetParam());
      const std::shared_ptr<Control> control = Control::connect(job);
      body(*control);
    });
  }
};

TEST_P(WorldTest, EveryRankKnowsAll) {
  run([&](Control& control) {
    EXPECT_EQ(control.size(), size());
    for (int rank = 0; rank < size(); ++rank) {
      EXPECT_EQ(control.peer(rank).pid, ::getpid());
      EXPECT_EQ(control.peer(rank).host_id, control.peer(0).host_id);
      EXPECT_THAT(control.describe(rank), HasSubstr(cat("rank ", rank, " (")));
    }
  });
}

TEST_P(WorldTest, QuestionsReachEverybodyAndComeBack) {
  Barrier done(size());
  run([&](Control& control) {
    AttachedClient client(control, kWorld, everybody(size()));
    for (int rank = 0; rank < size(); ++rank) control.ask(kWorld, rank, 7 + rank);
    for (int rank = 0; rank < size(); ++rank) {
      EXPECT_EQ(client->wait_for_answer(rank, 7 + rank),
                cat("rank ", rank, " tells rank ", control.rank(), " of call ", 7 + rank));
    }
    done.wait();
  });
}

TEST_P(WorldTest, PoisonReachesAllOfOneCommunicator) {
  Barrier done(size());
  run([&](Control& control) {
    AttachedClient world(control, kWorld, everybody(size()));
    AttachedClient other(control, 2, everybody(size()));
    if (control.rank() == size() - 1) {
      control.poison(kWorld, Error(ErrorCode::mismatch, "they do not fit"));
    }
    const Error error = world->wait_for_abort();
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_STREQ(error.what(), "they do not fit");
    EXPECT_FALSE(other->aborted());
    done.wait();
  });
}

// Ranks leave in any order; nobody takes it for a death.
TEST_P(WorldTest, LeavingIsNoDeath) {
  run([&](Control& control) {
    AttachedClient client(control, kWorld, everybody(size()));
    if (control.rank() % 2 == 1) return;
    const Deadline deadline = Deadline::after(kPatience);
    for (int rank = 1; rank < size(); rank += 2) {
      while (!control.has_left(rank) && !deadline.passed()) std::this_thread::yield();
      EXPECT_TRUE(control.has_left(rank));
    }
    EXPECT_FALSE(client->aborted());
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, WorldTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5, 16),
                                            ::testing::Values(2, 32)));

Fd memory_with(const std::string& text) {
  Fd memory(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(memory.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return memory;
}

std::string text_in(const Fd& memory) {
  std::string text(64, '\0');
  const ssize_t got = ::pread(memory.get(), text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : got);
  return text;
}

TEST(Descriptors, FetchWaitsForTheOffer) {
  Barrier step(3);
  run_ranks(3, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    const Deadline deadline = Deadline::after(kPatience);
    if (control->rank() == 1) {
      control->offer("early", memory_with("early bytes").get());  // the offer keeps its own copy
      step.wait();
      // Ranks 0 and 2 ask for this one; they may do so before it is there.
      control->offer("late", memory_with("late bytes").get());
    } else {
      step.wait();
      EXPECT_EQ(text_in(control->fetch(1, "late", deadline)), "late bytes");
      EXPECT_EQ(text_in(control->fetch(1, "early", deadline)), "early bytes");
    }
    step.wait();
    if (control->rank() == 1) control->withdraw("late");
    step.wait();
    if (control->rank() == 0) {
      EXPECT_THROW(control->fetch(1, "late", Deadline::after(std::chrono::milliseconds(50))),
                   Error);
    }
    step.wait();
  });
}

TEST(Descriptors, AloneToo) {
  const std::shared_ptr<Control> control = Control::connect(Job{});
  control->offer("mine", memory_with("my bytes").get());
  EXPECT_EQ(text_in(control->fetch(0, "mine", Deadline::after(kPatience))), "my bytes");
  EXPECT_THROW(control->fetch(0, "other", Deadline::after(std::chrono::milliseconds(10))), Error);
}

void expect_connected(const Fd& a, const Fd& b) {
  ASSERT_EQ(::write(a.get(), "x", 1), 1);
  ::fcntl(b.get(), F_SETFL, 0);  // blocking, for the test
  char byte = 0;
  ASSERT_EQ(::read(b.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(Connections, ReachTheClientAndAreKeptForOneThatComesLater) {
  Barrier step(2);
  std::vector<Fd> opened(2);
  run_ranks(2, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (control->rank() == 1) {
      AttachedClient client(*control, kWorld, everybody(2));
      control->open_connection(kWorld, 0, 0);
      opened[0] = client->wait_for_opened(0, 0);
      step.wait();
      step.wait();
      control->open_connection(kWorld, 0, 5);
      opened[1] = client->wait_for_opened(0, 5);
      step.wait();
    } else {
      step.wait();  // the first connection is there before the client is
      AttachedClient client(*control, kWorld, everybody(2));
      step.wait();
      step.wait();
      expect_connected(opened[0], client->wait_for_connection(1, 0));
      expect_connected(opened[1], client->wait_for_connection(1, 5));
    }
  });
}

TEST(Connections, OfSeveralLanesToSeveralPeersAtATime) {
  constexpr int kRanks = 4;
  constexpr int kLanes = 8;
  Barrier done(kRanks);
  run_ranks(kRanks, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient client(*control, kWorld, everybody(kRanks));
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer != job.rank) control->open_connection(kWorld, peer, lane);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == job.rank) continue;
        Fd opened = client->wait_for_opened(peer, lane);
        Fd accepted = client->wait_for_connection(peer, lane);
        expect_connected(opened, accepted);
      }
    }
    done.wait();
  });
}

// Nobody is suspected for having left: the client can ask for that.
TEST(Connections, ToARankThatHasLeftComeToNothing) {
  run_ranks(2, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (control->rank() == 1) return;
    AttachedClient client(*control, kWorld, everybody(2));
    const Deadline deadline = Deadline::after(kPatience);
    while (!control->has_left(1) && !deadline.passed()) std::this_thread::yield();
    ASSERT_TRUE(control->has_left(1));
    control->open_connection(kWorld, 1, 0);
    control->ask(kWorld, 0, 1);  // commands are taken in order
    client->wait_for_answer(0, 1);
    EXPECT_FALSE(client->aborted());
  });
}

TEST(Poison, IsKeptForAClientThatComesLater) {
  Barrier step(2);
  run_ranks(2, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (control->rank() == 0) {
      control->poison(9, Error(ErrorCode::aborted, "no more"));
      // On the same links, so the poison has arrived when this is answered.
      AttachedClient client(*control, kWorld, everybody(2));
      control->ask(kWorld, 1, 1);
      client->wait_for_answer(1, 1);
      step.wait();
    } else {
      AttachedClient world(*control, kWorld, everybody(2));
      step.wait();
      AttachedClient late(*control, 9, everybody(2));
      EXPECT_STREQ(late->wait_for_abort().what(), "no more");
    }
    step.wait();
  });
}

TEST(Detached, CommunicatorsAnswerWithNothingAndTakeNoConnections) {
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
    control->open_connection(kWorld, 1, 0);
    const Fd socket = client->wait_for_opened(1, 0);
    std::byte byte{};
    EXPECT_EQ(
        bootstrap::read_exactly(socket.get(), std::span(&byte, 1), Deadline::after(kPatience)),
        bootstrap::Transfer::closed);
    step.wait();
  });
}

TEST(Kept, ConnectionsOutliveThePoisonsOfOthersCommunicators) {
  constexpr uint64_t kStrange = 1000;
  bootstrap::ClientTable table(2);
  table.connection(kWorld, 1, 3, memory_with("x"));
  EXPECT_FALSE(table.question(kWorld, 1, 5).has_value());
  for (uint64_t i = 0; i < 1000; ++i) table.abort(kStrange + i, Error(ErrorCode::aborted, "no"));
  RecordingClient client;
  const auto answers = table.attach(kWorld, everybody(2), &client);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].call, 5U);
  EXPECT_TRUE(client.wait_for_connection(1, 3));
  EXPECT_FALSE(client.aborted());
}

TEST(Suspicion, WithoutAReasonAbortsTheCommunicator) {
  Barrier done(3);
  run_ranks(3, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient client(*control, kWorld, everybody(3));
    if (control->rank() == 1) control->suspect(kWorld, 2, "the cable was cut");
    const Error error = client->wait_for_abort();
    EXPECT_EQ(error.code(), ErrorCode::connection_lost);
    EXPECT_STREQ(error.what(), "the cable was cut");
    done.wait();
  });
}

TEST(Fork, TheChildCannotBreakTheParent) {
  Barrier done(2);
  run_ranks(2, [&](const Job& job) {
    std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient client(*control, kWorld, everybody(2));
    done.wait();
    if (control->rank() == 0) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        int verdict = 1;
        try {
          control->poison(kWorld, Error(ErrorCode::aborted, "from the child"));
        } catch (const Error& error) {
          verdict = error.code() == ErrorCode::unsupported ? 0 : 2;
        }
        if (!control->forked()) verdict = 3;
        control->detach(kWorld);
        control.reset();
        ::_exit(verdict);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_FALSE(control->forked());
    control->ask(kWorld, 1 - control->rank(), 3);
    client->wait_for_answer(1 - control->rank(), 3);
    EXPECT_FALSE(client->aborted());
    done.wait();
  });
}

TEST(Fork, IsNoticedAloneToo) {
  const std::shared_ptr<Control> control = Control::connect(Job{});
  EXPECT_FALSE(control->forked());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(control->forked() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A peer that refuses the connection is told of by the connector; so is one that is not there.
TEST(Connector, TellsOfFailuresAndGoesOn) {
  using namespace bootstrap;
  const Fd listener = listen_on(resolve("127.0.0.1", 0).front());
  Acceptor acceptor(Fd(::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0)), "token", 3);
  acceptor.set_session_key("key");
  PeerInfo peer;
  peer.address = "127.0.0.1";
  peer.port = local_address(listener.get()).port();
  PeerInfo nobody = peer;
  {
    const Fd closed = listen_on(resolve("127.0.0.1", 0).front());
    nobody.port = local_address(closed.get()).port();
  }
  Connector right("key");
  Connector wrong("another key");
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
  const auto on_opened = [&](uint64_t communicator, int rank, int lane, Fd) {
    opened.push_back(cat(communicator, " ", rank, " ", lane));
  };
  const auto on_failed = [&](uint64_t communicator, int rank, const std::string& text) {
    failed.push_back(cat(communicator, " ", rank, " ", text));
  };
  PollSet set;
  const Deadline deadline = Deadline::after(kPatience);
  while (opened.size() + failed.size() < 3 && !deadline.passed()) {
    right.watch(set, on_opened, on_failed);
    wrong.watch(set, on_opened, on_failed);
    acceptor.watch(
        set, [](const Hello&) { return Decision::accept; }, [](const Hello&, Fd) {});
    set.wake_at(Clock::now() + std::chrono::milliseconds(50));
    set.run();
  }
  EXPECT_THAT(opened, ::testing::ElementsAre("9 1 4"));
  EXPECT_THAT(failed, ::testing::UnorderedElementsAre(
                          HasSubstr("9 2 connect to rank 2 at 127.0.0.1:"),
                          HasSubstr("refused this rank: it was started with another token")));
}

long open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(Leaks, NoDescriptorStaysAfterFiftyJobs) {
  const auto once = [] {
    run_ranks(3, [](const Job& job) {
      const std::shared_ptr<Control> control = Control::connect(job);
      AttachedClient client(*control, kWorld, everybody(3));
      control->offer("memory", memory_with("x").get());
      const Fd memory = control->fetch((job.rank + 1) % 3, "memory", Deadline::after(kPatience));
      control->open_connection(kWorld, (job.rank + 1) % 3, 0);
      const Fd socket = client->wait_for_opened((job.rank + 1) % 3, 0);
      client->wait_for_connection((job.rank + 2) % 3, 0);
    });
  };
  once();
  const long before = open_descriptors();
  for (int i = 0; i < 50; ++i) once();
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace tutti::testing
