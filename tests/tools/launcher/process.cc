#include "tests/tools/launcher/process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "base/text.h"
#include "tools/launcher/child.h"

namespace tutti::tool {

namespace {

std::string launcher_path() {
  const char* path = std::getenv("LAUNCHER_MAIN");  // for runs outside Bazel
  return path != nullptr ? path : "tests/tools/launcher/launcher_main";
}

}  // namespace

Process::Process(int ranks, const std::string& hosts, std::vector<std::string> command,
                 Environment environment) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  ChildSpec spec{.command = {launcher_path(), std::to_string(ranks), hosts, "1"},
                 .environment = std::move(environment),
                 .out = out.write.get(),
                 .err = err.write.get(),
                 .die_with_parent = true};
  spec.command.insert(spec.command.end(), command.begin(), command.end());
  pid_ = start_child(spec);
  out_ = std::move(out.read);
  err_ = std::move(err.read);
}

Process::~Process() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::vector<std::string> Process::read_lines(size_t count) {
  char buffer[4096];
  ssize_t got = 1;
  while (static_cast<size_t>(std::ranges::count(text_, '\n')) < count && got > 0) {
    got = ::read(out_.get(), buffer, sizeof buffer);
    if (got > 0) text_.append(buffer, static_cast<size_t>(got));
  }
  return split(text_, '\n');
}

Result Process::finish() {
  Result result{.out = text_};
  std::vector<pollfd> polled = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    ::poll(polled.data(), polled.size(), -1);
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

Result launch_script(int ranks, const std::string& script, Process::Environment environment) {
  return Process(ranks, "-", {"bash", "-c", script}, std::move(environment)).finish();
}

Watched::Watched(pid_t pid) : pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}

bool Watched::alive() const {
  pollfd polled{pidfd_.get(), POLLIN, 0};
  return pidfd_ && ::poll(&polled, 1, 0) == 0;
}

void Watched::wait_for_end() const {
  pollfd polled{pidfd_.get(), POLLIN, 0};
  if (pidfd_) ::poll(&polled, 1, -1);
}

}  // namespace tutti::tool
