#include "tools/launcher/remote_shell.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>

#include "base/error.h"
#include "base/fd.h"
#include "base/host_name.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti::tool {

namespace {

constexpr std::chrono::seconds kMost{30};  // longest connect timeout

// Returns true if `host` is this host itself, which needs no remote shell, unless a batch system's
// shell (TUTTI_RSH, set by an allocation) also assigns processors.
bool is_here(const std::string& host) {
  const std::string origin = settings().value("TUTTI_RSH").origin;
  if (origin != "default" && origin != "environment") return false;
  const std::string own = host_name();
  return host == "localhost" || host.starts_with("127.") || host == "::1" || host == own ||
         host == own.substr(0, own.find('.'));
}

}  // namespace

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
  if (is_here(host)) {
    std::vector<std::string> command = {this_program()};
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }
  std::vector<std::string> command = split(settings().get_string("TUTTI_RSH"), ' ');
  if (command.empty()) {
    throw Error(ErrorCode::invalid_argument, "TUTTI_RSH is empty",
                {.remedy = "set it to ssh, or unset it"});
  }
  // Without ConnectTimeout a host that does not answer blocks for minutes. Options in TUTTI_RSH
  // come first and take precedence.
  const std::string& shell = command.front();
  if (shell.substr(shell.rfind('/') + 1) == "ssh") {
    const auto limit = std::chrono::ceil<std::chrono::seconds>(
        std::min<std::chrono::nanoseconds>(settings().get_duration("TUTTI_INIT_TIMEOUT"), kMost));
    command.insert(command.end(),
                   {"-o", cat("ConnectTimeout=", std::max<int64_t>(1, limit.count()))});
  }
  command.push_back(host);
  // A remote shell joins its arguments with spaces and passes them to a shell on the other host.
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
