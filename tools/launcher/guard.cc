#include "tools/launcher/guard.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "base/error.h"

namespace tutti::tool {

namespace {

constexpr pid_t kGoodbye = 0;

void close_all_but(int kept) {
  std::vector<int> open;
  if (DIR* directory = ::opendir("/proc/self/fd")) {
    while (const dirent* entry = ::readdir(directory)) open.push_back(std::atoi(entry->d_name));
    ::closedir(directory);
  }
  for (int fd : open) {
    if (fd != kept) ::close(fd);
  }
}

[[noreturn]] void stand_guard(int socket) {
  ::setsid();  // out of reach of the terminal's signals
  ::prctl(PR_SET_NAME, "tutti-guard");
  close_all_but(socket);  // nobody shall wait for the end of a pipe that only the guard holds
  std::vector<pid_t> groups;
  pid_t group = kGoodbye;
  ssize_t got;
  while ((got = ::read(socket, &group, sizeof group)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof group || group == kGoodbye) ::_exit(0);
    groups.push_back(group);
  }
  for (pid_t victim : groups) ::kill(-victim, SIGKILL);
  ::_exit(0);
}

}  // namespace

Guard::Guard() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw system_error("socketpair", errno);
  }
  socket_ = Fd(ends[0]);
  const Fd other(ends[1]);
  // Forked twice: the guard is nobody's child that the caller would have to wait for.
  const pid_t pid = ::fork();
  if (pid < 0) throw system_error("fork", errno);
  if (pid == 0) {
    socket_.reset();
    if (::fork() == 0) stand_guard(other.get());
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
}

Guard::~Guard() {
  ::send(socket_.get(), &kGoodbye, sizeof kGoodbye, MSG_NOSIGNAL);
  pid_t nothing;
  while (::read(socket_.get(), &nothing, sizeof nothing) < 0 && errno == EINTR) {
  }
}

void Guard::protect(pid_t process_group) {
  ::send(socket_.get(), &process_group, sizeof process_group, MSG_NOSIGNAL);
}

}  // namespace tutti::tool
