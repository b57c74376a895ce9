#include "tools/launcher/remote_shell.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>

#include "base/error.h"
#include "base/fd.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti::tool {

std::string this_program() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length < 0) throw system_error("readlink /proc/self/exe", errno);
  return {path, static_cast<size_t>(length)};
}

std::string quoted_for_shell(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:=@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> remote_command(const std::string& host,
                                        const std::vector<std::string>& words) {
  std::vector<std::string> command = split(settings().get_string("TUTTI_RSH"), ' ');
  if (command.empty()) {
    throw Error(ErrorCode::invalid_argument, "TUTTI_RSH is empty", {.remedy = "set it to ssh"});
  }
  command.push_back(host);
  // A remote shell hands its words, with blanks between them, to a shell on the other host.
  command.push_back(quoted_for_shell(this_program()));
  for (const std::string& word : words) command.push_back(quoted_for_shell(word));
  return command;
}

int wait_for_child(pid_t pid, std::chrono::milliseconds at_most) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(at_most.count())) == 0) ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace tutti::tool
