// Tests the control channel; ranks are threads.
#include "transport/bootstrap/control/control.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <future>
#include <tuple>

#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/tree.h"
#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/handshake/link.h"

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

// Every surviving rank must reach all others, and no rank may pass the same parent twice.
TEST(Tree, RoutesAmongTheSurvivors) {
  constexpr int kRanks = 24;
  for (const int fanout : {1, 2, 3, 32}) {
    for (const uint32_t gone_ranks : {0x1U, 0x2U, 0x7U, 0x0010ffU, 0xfffU, 0x5555U, 0x3000feU}) {
      const auto gone = [&](int rank) { return (gone_ranks >> rank & 1) != 0; };
      for (int from = 0; from < kRanks; ++from) {
        for (int to = 0; to < kRanks; ++to) {
          if (gone(from) || gone(to)) continue;
          int at = from;
          for (int hops = 0; at != to && hops <= 2 * kRanks; ++hops) {
            const bootstrap::Tree tree{.rank = at, .size = kRanks, .fanout = fanout};
            const int next = tree.next_hop(to, gone);
            ASSERT_GE(next, 0);
            ASSERT_FALSE(gone(next));
            ASSERT_TRUE(tree.parent_of(at, gone) == next || tree.parent_of(next, gone) == at);
            at = next;
          }
          ASSERT_EQ(at, to) << "from " << from << " with fanout " << fanout;
        }
      }
    }
  }
}

// A stopped process does not read. If more questions were sent than the buffers of its system can
// hold, the link would break.
TEST(Link, SendsNoMoreQuestionsToASilentPeer) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  bootstrap::Link link{ByteStream(Fd(ends[0]))};
  const Fd other(ends[1]);
  const std::string question = bootstrap::FrameWriter(bootstrap::FrameType::look).finish();
  const auto ask_often = [&] {
    for (int i = 0; i < 1000; ++i) link.ask(question, 10);
    std::array<char, 100'000> block{};
    const ssize_t got = std::max<ssize_t>(0, ::read(other.get(), block.data(), block.size()));
    return got / std::ssize(question);
  };
  EXPECT_EQ(ask_often(), 10);
  EXPECT_EQ(ask_often(), 0);
  ASSERT_EQ(::write(other.get(), question.data(), question.size()), std::ssize(question));
  EXPECT_TRUE(link.receive([](std::string_view) { return true; }, 100));
  EXPECT_EQ(ask_often(), 10);
}

class WorldTest : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  void run(const std::function<void(Control&)>& body) const {
    run([](Job&) {}, body);
  }
  void run(const std::function<void(Job&)>& prepare,
           const std::function<void(Control&)>& body) const {
    run_ranks(size(), [&](Job job) {
      job.fanout = std::get<1>(GetParam());
      job.most_held = job.fanout / 2;  // so that some ranks are released early, and others late
      prepare(job);
      const std::shared_ptr<Control> control = Control::connect(job);
      body(*control);
    });
  }
};

TEST_P(WorldTest, EveryRankKnowsAll) {
  const auto domain_of = [](int rank) { return Domain{.numa_node = rank % 3 - 1, .cache = rank}; };
  const auto place = [&](Job& job) { job.domain = domain_of(job.rank); };
  run(place, [&](Control& control) {
    EXPECT_EQ(control.size(), size());
    for (int rank = 0; rank < size(); ++rank) {
      EXPECT_EQ(control.peer(rank).pid, ::getpid());
      EXPECT_EQ(control.peer(rank).host_id, control.peer(0).host_id);
      // In a job of one rank, no peer needs the domain.
      if (size() > 1) {
        EXPECT_EQ(control.peer(rank).domain, domain_of(rank));
      }
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

// A client may be slow, for instance if it writes to a file system that hangs. This must not delay
// the ranks below it in the tree.
TEST(Poison, IsForwardedBeforeDelivery) {
  class SlowClient final : public ControlClient {
   public:
    explicit SlowClient(std::shared_future<void> others) : others_(std::move(others)) {}
    void on_abort(const Error&) override { told_ = others_.wait_for(kPatience); }
    std::string on_question(int, uint32_t) override { return {}; }
    void on_answer(int, uint32_t, std::string_view) override {}
    void on_connection(int, int, int, ByteStream) override {}
    void on_opened(int, int, ByteStream) override {}
    std::future_status told() const { return told_; }

   private:
    const std::shared_future<void> others_;
    std::future_status told_ = std::future_status::ready;
  };
  std::promise<void> lowest_knows;
  const std::shared_future<void> known = lowest_knows.get_future().share();
  Barrier attached(3);
  Barrier done(3);
  run_ranks(3, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (control->rank() == 0) {
      SlowClient client(known);
      control->attach(kWorld, everybody(3), &client);
      attached.wait();
      done.wait();
      control->detach(kWorld);
      EXPECT_EQ(client.told(), std::future_status::ready);
      return;
    }
    AttachedClient client(*control, kWorld, everybody(3));
    attached.wait();
    if (control->rank() == 1) control->poison(kWorld, Error(ErrorCode::aborted, "it is over"));
    client->wait_for_abort();
    if (control->rank() == 2) lowest_knows.set_value();
    done.wait();
  });
}

// Ranks leave in any order. No rank may report this as a death.
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
      // The offer keeps its own copy of the descriptor.
      control->offer("early", memory_with("early bytes").get());
      step.wait();
      // Ranks 0 and 2 request this offer, possibly before it exists.
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

TEST(Descriptors, WorkInAJobOfOneRank) {
  const std::shared_ptr<Control> control = Control::connect(Job{});
  control->offer("mine", memory_with("my bytes").get());
  EXPECT_EQ(text_in(control->fetch(0, "mine", Deadline::after(kPatience))), "my bytes");
  EXPECT_THROW(control->fetch(0, "other", Deadline::after(std::chrono::milliseconds(10))), Error);
}

TEST(Poison, WaitsForAClientThatComesLater) {
  Barrier step(2);
  run_ranks(2, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (control->rank() == 0) {
      control->poison(9, Error(ErrorCode::aborted, "no more"));
      // The abort and this question use the same links, so that the abort has arrived when the
      // question is answered.
      AttachedClient client(*control, kWorld, everybody(2));
      control->ask(kWorld, 1, 1);
      client->wait_for_answer(1, 1);
      step.wait();
    } else {
      const Control::Making making(*control);
      AttachedClient world(*control, kWorld, everybody(2));
      step.wait();
      AttachedClient late(*control, 9, everybody(2));
      EXPECT_STREQ(late->wait_for_abort().what(), "no more");
    }
    step.wait();
  });
}

// A question is not kept either. It is answered as soon as it is known that the communicator will
// not exist.
TEST(Poison, DoesNotWaitForACommunicatorThatWillNotExist) {
  Barrier step(2);
  run_ranks(2, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient world(*control, kWorld, everybody(2));
    AttachedClient one_sided(*control, 8 + control->rank(), everybody(2));
    step.wait();
    if (control->rank() == 0) {
      control->poison(9, Error(ErrorCode::aborted, "no more"));
      control->poison(10, Error(ErrorCode::aborted, "no more"));
      // Uses the same links, so that the abort has arrived when it is answered.
      control->ask(8, 1, 1);
      EXPECT_EQ(one_sided->wait_for_answer(1, 1), "");
    }
    step.wait();
    if (control->rank() == 1) {
      EXPECT_TRUE(one_sided->aborted());
      EXPECT_FALSE(AttachedClient(*control, 10, everybody(2))->aborted());
    }
    step.wait();
  });
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

TEST(Fork, LonelyRankNoticesIt) {
  const std::shared_ptr<Control> control = Control::connect(Job{});
  EXPECT_FALSE(control->forked());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(control->forked() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
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
      control->open_connection(kWorld, (job.rank + 1) % 3, 0, {});
      const ByteStream socket = client->wait_for_opened((job.rank + 1) % 3, 0);
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
