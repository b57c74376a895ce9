// Tests deaths of ranks that are separate processes. The other ranks must report who died and how.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kWorld = 1;

struct Pipe {
  Fd read_end;
  Fd write_end;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error("pipe", errno);
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
  }
  void write(std::string_view text) const {
    EXPECT_EQ(::write(write_end.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }
  // Reads up to the end of a line, or until all writers have closed the pipe.
  std::string read_line() const {
    std::string line;
    char byte = 0;
    while (bootstrap::wait_for(read_end.get(), POLLIN, Deadline::after(kPatience)) &&
           ::read(read_end.get(), &byte, 1) == 1 && byte != '\n') {
      line += byte;
    }
    return line;
  }
};

// A job whose ranks are child processes of the test.
class Processes {
 public:
  using Body = std::function<void(Control&, const Pipe& report, const Pipe& orders)>;

  Processes(int size, int fanout, bool with_launcher, const Body& body) : size_(size) {
    for (int rank = 0; rank < size; ++rank) {
      reports_.emplace_back();
      orders_.emplace_back();
      launcher_.emplace_back();
    }
    LocalRendezvous rendezvous;
    std::vector<Job> jobs;
    for (int rank = 0; rank < size; ++rank) {
      jobs.push_back(rendezvous.job(rank, size));
      jobs.back().fanout = fanout;
      if (with_launcher) jobs.back().launcher_fd = launcher_[rank].read_end.get();
    }
    listener_ = Fd(jobs[0].listen_fd);
    for (int rank = 0; rank < size; ++rank) pids_.push_back(start(jobs[rank], body));
    listener_.reset();
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL);
    }
    for (int rank = 0; rank < size_; ++rank) reap(rank);
  }

  pid_t pid(int rank) const { return pids_[rank]; }
  std::string line_from(int rank) const { return reports_[rank].read_line(); }
  void order(int rank) const { orders_[rank].write("go\n"); }
  void launcher_says(int rank, const std::string& line) const { launcher_[rank].write(line); }
  // Waits for the end of the process. Returns its wait status.
  int reap(int rank) {
    int status = 0;
    if (pids_[rank] > 0) ::waitpid(pids_[rank], &status, 0);
    pids_[rank] = -1;
    return status;
  }
  void wait_until_all_are_there() const {
    for (int rank = 0; rank < size_; ++rank) EXPECT_EQ(line_from(rank), "ready");
  }

 private:
  pid_t start(const Job& job, const Body& body) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    if (job.rank == 0) {
      listener_.release();  // rank 0 has taken over the listener
    } else {
      listener_.reset();
    }
    int status = 0;
    try {
      const std::shared_ptr<Control> control = Control::connect(job);
      body(*control, reports_[job.rank], orders_[job.rank]);
    } catch (const std::exception& error) {
      reports_[job.rank].write(cat("threw: ", error.what(), "\n"));
      status = 1;
    }
    ::_exit(status);
  }

  const int size_;
  Fd listener_;
  std::vector<Pipe> reports_;
  std::vector<Pipe> orders_;
  std::vector<Pipe> launcher_;
  std::vector<pid_t> pids_;
};

// The body of a rank: reports that it is ready, and then the abort that it receives.
void listen_for_abort(Control& control, const Pipe& report, const Pipe&) {
  AttachedClient client(control, kWorld, everybody(control.size()));
  report.write("ready\n");
  const Error error = client->wait_for_abort();
  report.write(cat(name(error.code()), ": ", error.what(), "\n"));
}

class DeathTest : public ::testing::TestWithParam<int> {};

// Rank 1 dies. If the tree has several levels, rank 1 has children.
TEST_P(DeathTest, EveryRankNoticesIt) {
  constexpr int kRanks = 6;
  Processes job(kRanks, GetParam(), false, listen_for_abort);
  job.wait_until_all_are_there();
  const std::string pid = cat("pid ", job.pid(1), ")");
  ::kill(job.pid(1), SIGKILL);
  for (const int rank : {0, 2, 3, 4, 5}) {
    EXPECT_THAT(job.line_from(rank), AllOf(HasSubstr("rank died: rank 1 ("), HasSubstr(pid),
                                           HasSubstr("vanished: its connection broke")));
  }
}

TEST_P(DeathTest, EveryRankNoticesTheDeathOfRankZero) {
  Processes job(4, GetParam(), false, listen_for_abort);
  job.wait_until_all_are_there();
  ::kill(job.pid(0), SIGKILL);
  for (const int rank : {1, 2, 3}) {
    EXPECT_THAT(job.line_from(rank), HasSubstr("rank died: rank 0 ("));
  }
}

TEST_P(DeathTest, TheLauncherExplainsIt) {
  Processes job(4, GetParam(), true, listen_for_abort);
  job.wait_until_all_are_there();
  const pid_t pid = job.pid(1);
  ::kill(pid, SIGKILL);
  ASSERT_EQ(WTERMSIG(job.reap(1)), SIGKILL);
  for (const int rank : {0, 2, 3}) {
    job.launcher_says(rank, cat("signal 1 ", pid, " 9 by a hand\n"));
  }
  for (const int rank : {0, 2, 3}) {
    EXPECT_THAT(job.line_from(rank),
                AllOf(HasSubstr("rank died: rank 1 ("),
                      HasSubstr(cat("pid ", pid, ") was killed by signal 9 (Killed) by a hand;"))));
  }
}

// Rank 0 dies after the rendezvous, before it creates the offer that rank 1 has requested.
TEST_P(DeathTest, RanksThatRequestAnOfferNoticeIt) {
  const auto ask = [](Control& control, const Pipe& report, const Pipe& orders) {
    report.write("ready\n");
    orders.read_line();
    control.fetch(0, "region", Deadline::after(kPatience));
  };
  Processes job(2, GetParam(), false, ask);
  job.wait_until_all_are_there();
  ::kill(job.pid(0), SIGKILL);
  ASSERT_EQ(WTERMSIG(job.reap(0)), SIGKILL);
  job.order(1);
  EXPECT_THAT(job.line_from(1), AllOf(HasSubstr("threw: "), HasSubstr("rank 0 ("),
                                      HasSubstr("vanished: its connection broke")));
}

// Ranks 2 and 3 share a communicator, and rank 2 ends because rank 1 has died. The error on rank 3
// must name this cause. If rank 0 dies, a flat tree has no links left.
TEST_P(DeathTest, LaterErrorsNameItAsTheirCause) {
  for (const int killed : {0, 1}) {
    SCOPED_TRACE(killed);
    Processes job(4, GetParam(), true,
                  [](Control& control, const Pipe& report, const Pipe& orders) {
                    if (control.rank() != 3) return listen_for_abort(control, report, orders);
                    AttachedClient client(control, 2, {2, 3});
                    report.write("ready\n");
                    report.write(cat(client->wait_for_abort().what(), "\n"));
                  });
    job.wait_until_all_are_there();
    const pid_t pid = job.pid(killed);
    ::kill(pid, SIGKILL);
    job.reap(killed);
    job.launcher_says(3, cat("signal ", killed, " ", pid, " 9\n"));
    ::kill(job.pid(2), SIGKILL);
    job.reap(2);
    job.launcher_says(3, cat("exit 2 ", job.pid(2), " 1\n"));
    EXPECT_THAT(job.line_from(3),
                AllOf(HasSubstr(cat("rank ", killed, " (")), HasSubstr("was killed by signal 9"),
                      ::testing::Not(HasSubstr("rank 2 ("))));
  }
}

// Ranks 1 and 3 die at the same time.
TEST_P(DeathTest, TwoDeathsAreBothReported) {
  Processes job(4, GetParam(), true, listen_for_abort);
  job.wait_until_all_are_there();
  std::string lines;
  for (const int rank : {3, 1}) {
    ::kill(job.pid(rank), SIGKILL);
    lines += cat("signal ", rank, " ", job.pid(rank), " 9\n");
    job.reap(rank);
  }
  for (const int rank : {0, 2}) job.launcher_says(rank, lines);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(
        job.line_from(rank),
        ::testing::ContainsRegex("rank 3 \\([^)]*\\) was killed by signal 9 \\(Killed\\); "
                                 "rank 1 \\([^)]*\\) was killed by signal 9 \\(Killed\\); remedy"));
  }
}

// Ranks that connected other ranks die one after another. Afterwards an abort, and a question, must
// still reach all survivors.
TEST_P(DeathTest, LeavesNobodyCutOff) {
  const std::vector<std::vector<int>> orders_of_death = {{0},    {1},          {0, 1},
                                                         {1, 0}, {0, 1, 2, 3}, {3, 1, 0, 2}};
  for (const std::vector<int>& dead : orders_of_death) {
    SCOPED_TRACE(::testing::PrintToString(dead));
    constexpr int kRanks = 8;
    Processes job(kRanks, GetParam(), false,
                  [](Control& control, const Pipe& report, const Pipe& orders) {
                    AttachedClient survivors(control, 2, {4, 5, 6, 7});
                    report.write("ready\n");
                    orders.read_line();
                    const int asked = control.rank() == 4 ? 7 : 4;
                    survivors->ask_until_answered(control, 2, asked);
                    report.write("answered\n");
                    if (control.rank() == 7) {
                      orders.read_line();
                      control.poison(2, Error(ErrorCode::aborted, "enough"));
                    }
                    report.write(cat(survivors->wait_for_abort().what(), "\n"));
                    orders.read_line();
                  });
    job.wait_until_all_are_there();
    for (const int rank : dead) {
      ::kill(job.pid(rank), SIGKILL);
      job.reap(rank);
    }
    for (const int rank : {4, 5, 6, 7}) job.order(rank);
    for (const int rank : {4, 5, 6, 7}) EXPECT_EQ(job.line_from(rank), "answered");
    job.order(7);
    for (const int rank : {4, 5, 6, 7}) EXPECT_EQ(job.line_from(rank), "enough");
  }
}

// A rank that leaves serves the ranks below it for a limited time.
TEST_P(DeathTest, RanksNoticeItAfterOthersHaveLeft) {
  constexpr int kRanks = 6;
  Processes job(kRanks, GetParam(), false,
                [](Control& control, const Pipe& report, const Pipe& orders) {
                  report.write("ready\n");
                  if (control.rank() < 2) return;  // leaves when `control` is destroyed
                  listen_for_abort(control, report, orders);
                });
  job.wait_until_all_are_there();
  for (const int rank : {2, 3, 4, 5}) EXPECT_EQ(job.line_from(rank), "ready");
  for (const int rank : {0, 1}) EXPECT_EQ(job.reap(rank), 0);
  ::kill(job.pid(5), SIGKILL);
  for (const int rank : {2, 3, 4})
    EXPECT_THAT(job.line_from(rank), HasSubstr("rank died: rank 5 ("));
}

INSTANTIATE_TEST_SUITE_P(Trees, DeathTest, ::testing::Values(1, 2, 32));

TEST(Exit, WithoutLeavingIsADeath) {
  Processes job(3, 32, true, [](Control& control, const Pipe& report, const Pipe& orders) {
    if (control.rank() != 2) return listen_for_abort(control, report, orders);
    report.write("ready\n");
    ::_exit(0);
  });
  job.wait_until_all_are_there();
  const pid_t pid = job.pid(2);
  job.reap(2);
  for (const int rank : {0, 1}) job.launcher_says(rank, cat("exit 2 ", pid, " 0\n"));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(job.line_from(rank), HasSubstr("ended with exit code 0 without leaving the job"));
  }
}

TEST(Exit, ExitsAfterLeavingAreNoDeaths) {
  Processes job(4, 32, true, [](Control& control, const Pipe& report, const Pipe& orders) {
    report.write("ready\n");
    if (control.rank() == 3) return;  // leaves when `control` is destroyed
    AttachedClient client(control, kWorld, everybody(control.size()));
    const Deadline deadline = Deadline::after(kPatience);
    while (!control.has_left(3) && !deadline.passed()) ::usleep(1000);
    report.write("left\n");
    orders.read_line();
    report.write(cat(client->wait_for_abort().what(), "\n"));
  });
  job.wait_until_all_are_there();
  for (const int rank : {0, 1, 2}) EXPECT_EQ(job.line_from(rank), "left");
  // Lines are processed in order. If the first line counted as a death, the rank in it would be
  // reported.
  for (const int rank : {0, 1, 2}) {
    job.launcher_says(rank, cat("signal 3 ", job.pid(3), " 9\nsignal 1 ", job.pid(1), " 15\n"));
    job.order(rank);
  }
  for (const int rank : {0, 2}) {
    EXPECT_THAT(job.line_from(rank), AllOf(HasSubstr("rank 1 ("), HasSubstr("signal 15")));
  }
}

// Rank 0 has ended, so that the leave message of rank 1 does not reach the others. The launcher
// reports that rank 1 has ended.
TEST(Exit, ExitsAfterLeavingAreNoDeathsEvenIfNoGoodbyeArrives) {
  Processes job(4, 32, true, [](Control& control, const Pipe& report, const Pipe& orders) {
    report.write("ready\n");
    if (control.rank() == 0) return;  // leaves when `control` goes
    if (control.rank() == 1) {
      orders.read_line();
      return;
    }
    AttachedClient client(control, kWorld, everybody(control.size()));
    report.write(cat(client->wait_for_abort().what(), "\n"));
  });
  job.wait_until_all_are_there();
  EXPECT_EQ(job.reap(0), 0);  // takes two seconds, because the other ranks stay
  ::usleep(500'000);  // rank 3 has no launcher: it must have moved to rank 1 before rank 1 ends
  const pid_t first = job.pid(1);
  job.order(1);
  EXPECT_EQ(job.reap(1), 0);
  // Both lines wait equally long. If the end of rank 1 counted as a death, it would be reported
  // instead of that of rank 3.
  job.launcher_says(2, cat("exit 1 ", first, " 0\nexit 3 ", job.pid(3), " 1\n"));
  EXPECT_THAT(job.line_from(2), AllOf(HasSubstr("rank 3 ("), HasSubstr("exit code 1")));
}

TEST(Death, AttachReportsAnEarlierDeathToMembersOnly) {
  Processes job(3, 32, false, [](Control& control, const Pipe& report, const Pipe& orders) {
    AttachedClient first(control, kWorld, everybody(3));
    report.write("ready\n");
    if (control.rank() == 2) orders.read_line();
    first->wait_for_abort();
    RecordingClient member;
    RecordingClient stranger;
    control.attach(2, {0, 1, 2}, &member);
    control.attach(3, {0, 1}, &stranger);
    report.write(cat(member.aborted(), stranger.aborted(), "\n"));
    control.detach(2);
    control.detach(3);
  });
  job.wait_until_all_are_there();
  ::kill(job.pid(2), SIGKILL);
  for (const int rank : {0, 1}) EXPECT_EQ(job.line_from(rank), "10");
}

// The process has a free descriptor for the socket, but none for the descriptor that is sent
// through it.
TEST(Descriptors, TheReceiversLimitIsNotBlamedOnThePeer) {
  Processes job(2, 32, false, [](Control& control, const Pipe& report, const Pipe& orders) {
    if (control.rank() == 0) {
      const Pipe offered;
      control.offer("pipe", offered.read_end.get());
      report.write("ready\n");
      orders.read_line();
      return;
    }
    report.write("ready\n");
    orders.read_line();
    const int lowest_free = Fd(::dup(0)).get();
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(lowest_free) + 1;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    try {
      control.fetch(0, "pipe", Deadline::after(kPatience));
    } catch (const Error& error) {
      report.write(cat(error.what(), "\n"));
    }
  });
  job.wait_until_all_are_there();
  job.order(1);
  EXPECT_THAT(job.line_from(1), AllOf(HasSubstr("this process has reached its limit of open files"),
                                      HasSubstr("ulimit -n")));
  job.order(0);
}

// The launcher sees a rank die before the job is complete. This ends the wait of rank 0.
TEST(Death, EndsTheBootstrap) {
  const Pipe launcher;
  LocalRendezvous rendezvous;
  Job job = rendezvous.job(0, 3);
  job.launcher_fd = launcher.read_end.get();
  launcher.write("signal 2 4711 11\n");
  try {
    Control::connect(job);
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rank_died);
    EXPECT_THAT(error.what(),
                HasSubstr("rank 2 (pid 4711) was killed by signal 11 (Segmentation fault)"));
  }
}

}  // namespace
}  // namespace tutti::testing
