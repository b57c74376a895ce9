// Tests failures while ranks gather and receive the rank table: deaths, disagreement and missing
// ranks. Ranks are still connected to rank 0, or have been released by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <future>
#include <span>

#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::testing {
namespace {

using namespace bootstrap;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Longer than these tests need, but shorter than their time limit. A test fails if a failure is
// noticed only by this timeout.
constexpr std::chrono::seconds kInitTimeout{20};
constexpr std::chrono::seconds kSoon{10};

struct Outcome {
  std::string text;  // error message; empty if the rank has joined
  ErrorCode code = ErrorCode::ok;
  bool soon = false;  // true if the rank failed long before the init timeout
};

std::future<Outcome> join_in_background(Job job) {
  job.init_timeout = kInitTimeout;
  return std::async(std::launch::async, [job] {
    const Deadline soon = Deadline::after(kSoon);
    Outcome outcome;
    try {
      Control::connect(job);
    } catch (const Error& error) {
      outcome = {.text = error.what(), .code = error.code()};
    }
    outcome.soon = !soon.passed();
    return outcome;
  });
}

void expect_death(std::future<Outcome>& rank, const ::testing::Matcher<std::string>& text) {
  const Outcome outcome = rank.get();
  EXPECT_EQ(outcome.code, ErrorCode::rank_died);
  EXPECT_THAT(outcome.text, text);
  EXPECT_TRUE(outcome.soon);
}

// Sends the messages of a rank up to its arrival. Returns its connection to rank 0.
ByteStream arrive(const Job& job) {
  Fd socket;
  const Deadline deadline = Deadline::after(kPatience);
  const SocketAddress address = resolve(job.master_address, job.master_port).front();
  EXPECT_EQ(try_connect(address, deadline, socket), 0);
  ByteStream stream =
      shake_hands(std::move(socket), {.encrypted = 1, .rank = job.rank, .size = job.size},
                  job.token, "rank 0", deadline);
  EXPECT_TRUE(stream);
  FrameWriter arrival(FrameType::arrival);
  PeerInfo self = describe_self();
  self.host = "node7";
  self.pid = 4711;
  self.address = "127.0.0.1";
  put(arrival, self);
  const std::string frame = arrival.put_text(job.wire_settings).finish();
  EXPECT_EQ(write_exactly(stream, std::as_bytes(std::span(frame)), deadline), Transfer::complete);
  return stream;
}

struct LauncherPipeEnds {
  LauncherPipeEnds() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
  void say(const std::string& line) const {
    EXPECT_EQ(::write(write.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  Fd read;
  Fd write;
};

TEST(DeathWhileJoining, AnArrivedRanksDeathEndsAllOthers) {
  LocalRendezvous rendezvous;
  auto zero = join_in_background(rendezvous.job(0, 4));
  auto one = join_in_background(rendezvous.job(1, 4));
  arrive(rendezvous.job(2, 4)).reset();
  for (auto* rank : {&zero, &one}) {
    expect_death(*rank, AllOf(HasSubstr("rank 2 (node7, pid 4711) disconnected"),
                              HasSubstr("before all ranks had connected")));
  }
}

TEST(DeathWhileJoining, ParentlessRanksDeathEndsAllOthers) {
  LocalRendezvous rendezvous;
  std::vector<Job> jobs;
  for (int rank = 0; rank < 4; ++rank) {
    jobs.push_back(rendezvous.job(rank, 4));
    jobs.back().fanout = 1;
  }
  std::vector<std::future<Outcome>> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(join_in_background(jobs[rank]));
  ByteStream three = arrive(jobs[3]);
  ASSERT_TRUE(wait_for(three.get(), POLLIN, Deadline::after(kPatience)));
  three.reset();
  // Rank 2 waits for rank 3. The other ranks have received everything that they need.
  expect_death(ranks[2], HasSubstr("rank 3 (node7, pid 4711) vanished"));
}

TEST(DeathWhileJoining, TheLauncherReportsItWhileRankZeroIsSilent) {
  LocalRendezvous listens_only;
  const LauncherPipeEnds launcher;
  Job job = listens_only.job(1, 3);
  job.launcher_fd = launcher.read.get();
  auto one = join_in_background(job);
  launcher.say("exit 2 4712 0\nsignal 0 4711 9\n");
  expect_death(one, HasSubstr("rank 0 (pid 4711) was killed by signal 9 (Killed)"));
}

TEST(DeathWhileJoining, TheLauncherReportsItWhileThereIsNoRankZero) {
  uint16_t port = 0;
  {
    const LocalRendezvous nobody_listens_any_more;
    port = nobody_listens_any_more.port();
  }
  const LauncherPipeEnds launcher;
  Job job = local_job(1, 3, port, "token");
  job.launcher_fd = launcher.read.get();
  auto one = join_in_background(job);
  launcher.say("exit 2 4712 1\n");
  expect_death(one, HasSubstr("rank 2 (pid 4712) ended with exit code 1"));
}

TEST(Disagreement, AboutTheSizeOfTheWorldEndsAllRanks) {
  LocalRendezvous rendezvous;
  auto zero = join_in_background(rendezvous.job(0, 4));
  auto one = join_in_background(rendezvous.job(1, 4));
  auto two = join_in_background(rendezvous.job(2, 3));
  for (auto* rank : {&zero, &one}) {
    const Outcome outcome = rank->get();
    EXPECT_EQ(outcome.code, ErrorCode::bootstrap);
    EXPECT_THAT(outcome.text,
                AllOf(HasSubstr("rank 2 (at 127.0.0.1) was started with WORLD_SIZE 3"),
                      HasSubstr("rank 0 ("), HasSubstr("with 4")));
    EXPECT_TRUE(outcome.soon);
  }
  const Outcome outcome = two.get();
  EXPECT_THAT(outcome.text, HasSubstr("this rank expects a world of 3 ranks"));
  EXPECT_TRUE(outcome.soon);
}

TEST(Missing, RanksThatArrivedTwiceInPlaceOfOthersAreNamed) {
  LocalRendezvous rendezvous;
  Job zero = rendezvous.job(0, 3);
  zero.init_timeout = std::chrono::milliseconds(3000);
  auto failure = std::async(std::launch::async, [&] {
    try {
      Control::connect(zero);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  });
  auto one = join_in_background(rendezvous.job(1, 3));
  auto twin = join_in_background(rendezvous.job(1, 3));
  EXPECT_THAT(failure.get(), AllOf(HasSubstr("2 of 3 did not arrive"),
                                   HasSubstr("more than one process was started as rank 1")));
}

// A job in which rank 0 keeps only the connection to rank 1, its only child. The other ranks wait
// at their own listeners.
class Released : public ::testing::Test {
 protected:
  static constexpr int kRanks = 5;
  Released() {
    for (int rank = 0; rank < kRanks; ++rank) {
      jobs_.push_back(rendezvous_.job(rank, kRanks));
      jobs_.back().fanout = 1;
      jobs_.back().most_held = 0;
    }
  }
  void join(int rank) { ranks_.push_back(join_in_background(jobs_[rank])); }
  void expect_all_hear(const ::testing::Matcher<std::string>& text) {
    for (auto& rank : ranks_) {
      const Outcome outcome = rank.get();
      EXPECT_THAT(outcome.text, text);
      EXPECT_TRUE(outcome.soon);
    }
  }

  LocalRendezvous rendezvous_;
  std::vector<Job> jobs_;
  std::vector<std::future<Outcome>> ranks_;
};

// Expects the release of a rank, and no further message on its first connection.
void wait_for_release(ByteStream& first) {
  std::string body;
  ASSERT_EQ(read_frame(first, body, kMaxFrameBytes, Deadline::after(kPatience)),
            Transfer::complete);
  EXPECT_EQ(FrameReader(body).type(), FrameType::released);
  ASSERT_EQ(read_frame(first, body, kMaxFrameBytes, Deadline::after(kPatience)), Transfer::closed);
}

TEST_F(Released, AllRanksReportDifferentSettings) {
  jobs_[3].wire_settings = "TUTTI_A=1;";
  for (int rank = 0; rank < kRanks; ++rank) join(rank);
  expect_all_hear(HasSubstr("has TUTTI_A=1, rank 0 has nothing more"));
}

// Rank 1 dies before rank 0 has the table, or after that. It is between rank 0 and the ranks below.
TEST_F(Released, AllRanksReportADeathAboveThem) {
  for (const int rank : {0, 2, 3}) join(rank);
  ByteStream four = arrive(jobs_[4]);
  wait_for_release(four);
  arrive(jobs_[1]).reset();
  // If rank 1 ends without having read the table, its connection breaks instead of ending.
  expect_all_hear(AnyOf(HasSubstr("rank 1 (node7, pid 4711) disconnected"),
                        HasSubstr("rank 1 (node7, pid 4711) vanished")));
}

TEST_F(Released, AllRanksNameMissingRanks) {
  for (const int rank : {1, 2, 3}) join(rank);
  jobs_[0].init_timeout = std::chrono::milliseconds(1000);
  auto zero =
      std::async(std::launch::async, [this] { EXPECT_THROW(Control::connect(jobs_[0]), Error); });
  expect_all_hear(HasSubstr("rank 4 of 5 did not arrive within 1 s"));
}

// The parent of the dead rank detects the death, and reports it to the ranks below.
TEST_F(Released, ADeathIsNoticedWhileTheTableIsSent) {
  auto zero = join_in_background(jobs_[0]);  // has received all that it needs
  for (const int rank : {1, 3, 4}) join(rank);
  ByteStream first = arrive(jobs_[2]);
  wait_for_release(first);
  expect_all_hear(HasSubstr("rank 2 (node7, pid 4711) vanished"));
}

TEST_F(Released, TheLauncherReportsADeath) {
  const LauncherPipeEnds launcher;
  jobs_[2].launcher_fd = launcher.read.get();
  join(2);
  auto zero = join_in_background(jobs_[0]);
  ByteStream four = arrive(jobs_[4]);
  wait_for_release(four);
  launcher.say("signal 3 4713 9\n");
  expect_all_hear(HasSubstr("rank 3 (pid 4713) was killed by signal 9"));
  arrive(jobs_[1]).reset();  // ends rank 0
  zero.get();
}

}  // namespace
}  // namespace tutti::testing
