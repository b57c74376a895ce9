#include "tests/support/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "base/deadline.h"
#include "base/text.h"
#include "tools/launcher/child.h"

namespace tutti::testing {

namespace {

// Waits until there is data to read. Returns false on timeout.
template <size_t count>
bool wait_for(std::array<pollfd, count>& polled, const Deadline& deadline) {
  ::poll(polled.data(), polled.size(), static_cast<int>(deadline.remaining().count()));
  return !deadline.passed();
}

}  // namespace

Process::Process(std::vector<std::string> command, Environment environment) {
  for (const std::string& word : command) command_ += word + ' ';
  tool::Pipe out = tool::make_pipe();
  tool::Pipe err = tool::make_pipe();
  pid_ = tool::start_child({.command = std::move(command),
                            .environment = std::move(environment),
                            .out = out.write.get(),
                            .err = err.write.get(),
                            .die_with_parent = true});
  out_ = std::move(out.read);
  err_ = std::move(err.read);
}

Process::~Process() {
  if (pid_ < 0) return;
  kill_group();
  ::waitpid(pid_, nullptr, 0);
}

void Process::kill_group() {
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // in case it has changed its process group
}

std::vector<std::string> Process::read_lines(size_t count) {
  const Deadline deadline = Deadline::after(kPatience);
  char buffer[4096];
  while (static_cast<size_t>(std::ranges::count(text_, '\n')) < count) {
    std::array<pollfd, 1> polled{{{out_.get(), POLLIN, 0}}};
    if (!wait_for(polled, deadline)) {
      ADD_FAILURE() << command_ << "printed fewer than " << count << " lines in time:\n" << text_;
      kill_group();
      break;
    }
    const ssize_t got = ::read(out_.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    text_.append(buffer, static_cast<size_t>(got));
  }
  return split(text_, '\n');
}

Result Process::finish(std::chrono::milliseconds limit) {
  Result result{.out = text_};
  const Deadline deadline = Deadline::after(limit);
  std::array<pollfd, 2> polled{{{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    if (!wait_for(polled, deadline)) {
      ADD_FAILURE() << command_ << "did not end within " << limit.count() << " ms; it said:\n"
                    << result.out << result.err;
      kill_group();
      break;
    }
    for (size_t i = 0; i < 2; ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(polled[i].fd, buffer, sizeof buffer);
      if (got <= 0) polled[i].fd = -1;
      if (got > 0) (i == 0 ? result.out : result.err).append(buffer, static_cast<size_t>(got));
    }
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

Watched::Watched(pid_t pid) : pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}

bool Watched::alive() const {
  pollfd polled{pidfd_.get(), POLLIN, 0};
  return pidfd_ && ::poll(&polled, 1, 0) == 0;
}

void Watched::wait_for_end() const {
  if (!pidfd_) return;
  std::array<pollfd, 1> polled{{{pidfd_.get(), POLLIN, 0}}};
  EXPECT_TRUE(wait_for(polled, Deadline::after(kPatience))) << "a process did not end";
}

}  // namespace tutti::testing
