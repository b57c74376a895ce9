#include "tools/chaos/processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "gtest/gtest.h"

namespace tutti::tool::chaos {
namespace {

// Starts a child that computes for `rounds` rounds and exits with 0. Returns when the child runs.
pid_t start_child_of(int rounds) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t pid = ::fork();
  char byte = 0;
  if (pid != 0) {
    EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
    for (const int fd : pipe) ::close(fd);
    return pid;
  }
  if (::write(pipe[1], &byte, 1) != 1) ::_exit(1);
  volatile int done = 0;
  while (done < rounds) done = done + 1;
  ::_exit(0);
}

int status_of_child(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

// A signal to a process that is exiting or has not been waited for is sent without an error and has
// no effect.
TEST(KillAlive, ReturnsWhetherTheSignalEndedTheProcess) {
  int killed = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    const pid_t pid = start_child_of(trial * 500);
    const bool told = kill_alive(pid);
    const int status = status_of_child(pid);
    ASSERT_EQ(told, WIFSIGNALED(status)) << "trial " << trial << ", status " << status;
    if (told) {
      ASSERT_EQ(WTERMSIG(status), SIGKILL);
    }
    killed += told ? 1 : 0;
  }
  RecordProperty("killed", killed);
}

TEST(KillAlive, ReturnsFalseForAProcessThatHasEnded) {
  const pid_t pid = start_child_of(0);
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(kill_alive(pid));
  EXPECT_EQ(status_of_child(pid), 0);
  EXPECT_FALSE(kill_alive(pid));
}

TEST(KillAlive, EndsAStoppedProcess) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (;;) ::pause();
  }
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  EXPECT_TRUE(kill_alive(pid));
  EXPECT_EQ(WTERMSIG(status_of_child(pid)), SIGKILL);
}

}  // namespace
}  // namespace tutti::tool::chaos
