#include "tools/launcher/guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tutti::tool {

namespace {

constexpr const char* kScript = R"(
while read -r group; do
  [ "$group" = bye ] && exit
  groups="$groups -$group"
done
kill -s KILL -- $groups
)";
constexpr std::string_view kGoodbye = "bye\n";

// Closes inherited descriptors, so that no reader waits for a pipe that only the guard holds.
void close_from(int first) {
  std::vector<int> open;
  if (DIR* directory = ::opendir("/proc/self/fd")) {
    while (const dirent* entry = ::readdir(directory)) open.push_back(std::atoi(entry->d_name));
    ::closedir(directory);
  }
  for (int fd : open) {
    if (fd >= first) ::close(fd);
  }
}

[[noreturn]] void stand_guard(int socket) {
  ::setsid();  // so that the terminal's signals do not reach the guard
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(socket, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  close_from(3);
  const std::array<char*, 1> no_environment = {nullptr};  // the environment contains the token
  ::execle("/bin/sh", "sh", "-c", kScript, "guard", static_cast<char*>(nullptr),
           no_environment.data());
  ::_exit(127);
}

}  // namespace

Guard::Guard() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw system_error("socketpair", errno);
  }
  socket_ = Fd(ends[0]);
  const Fd other(ends[1]);
  // Forks twice, so that this process's children are only ranks.
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
  ::send(socket_.get(), kGoodbye.data(), kGoodbye.size(), MSG_NOSIGNAL);
  char nothing;
  while (::read(socket_.get(), &nothing, 1) < 0 && errno == EINTR) {
  }
}

void Guard::protect(pid_t process_group) const {
  std::array<char, 16> line;
  char* end = std::to_chars(line.data(), line.data() + line.size() - 1, process_group).ptr;
  *end++ = '\n';
  ::send(socket_.get(), line.data(), static_cast<size_t>(end - line.data()), MSG_NOSIGNAL);
}

}  // namespace tutti::tool
