#include "tools/launcher/child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/descriptor_limit.h"
#include "base/text.h"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace tutti::tool {

namespace {

enum class Stage : int { directory, execute };

struct StartFailure {
  Stage stage;
  int error;
};

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    if (!changes.contains(std::string(variable.substr(0, variable.find('='))))) {
      merged.emplace_back(variable);
    }
  }
  for (const auto& [name, value] : changes) merged.push_back(cat(name, "=", value));
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

cpu_set_t cpu_set_of(const std::vector<int>& pus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int pu : pus) {
    if (pu < CPU_SETSIZE) CPU_SET(pu, &set);
  }
  return set;
}

// Makes `from` available as descriptor `to`, which a program started from here inherits.
void place(int from, int to) {
  if (from == to) {
    ::fcntl(to, F_SETFD, 0);
  } else if (from >= 0) {
    ::dup2(from, to);
  }
}

// Returns true for a compiled program, false for a script. Preserves errno.
bool is_compiled(const char* program) {
  const int before = errno;
  char magic[4] = {};
  const int fd = ::open(program, O_RDONLY | O_CLOEXEC);
  const bool read_all = ::read(fd, magic, sizeof magic) == sizeof magic;
  ::close(fd);
  errno = before;
  return read_all && std::memcmp(magic, "\177ELF", sizeof magic) == 0;
}

// The code that runs in the new process between fork and exec: only system calls, no allocation.
struct ChildStart {
  const ChildSpec& spec;
  char** arguments;
  char** variables;
  cpu_set_t cpus;
  int null;
  pid_t parent;
  int report;

  [[noreturn]] void fail(Stage stage) const {
    const StartFailure failure{stage, errno};
    [[maybe_unused]] const ssize_t written = ::write(report, &failure, sizeof failure);
    ::_exit(127);
  }

  [[noreturn]] void run() const {
    ::setpgid(0, 0);
    if (spec.die_with_parent) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(127);  // the parent died before prctl()
    }
    // Must precede exec, because the program could start others and kill its parent at once.
    if (spec.guard != nullptr) spec.guard->protect(::getpid());
    place(spec.in >= 0 ? spec.in : null, STDIN_FILENO);
    place(spec.out, STDOUT_FILENO);
    place(spec.err, STDERR_FILENO);
    for (int fd : spec.inherited) ::fcntl(fd, F_SETFD, 0);
    if (spec.open_files) ::setrlimit(RLIMIT_NOFILE, &*spec.open_files);
    // A container may forbid binding. The rank then runs unbound, which is only slower.
    if (!spec.pus.empty()) ::sched_setaffinity(0, sizeof cpus, &cpus);
    if (!spec.directory.empty() && ::chdir(spec.directory.c_str()) != 0) fail(Stage::directory);
    // this program ignores the signal, and the child would inherit that
    std::signal(SIGXFSZ, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const bool is_path = std::strchr(arguments[0], '/') != nullptr;
    if (is_path) ::execve(arguments[0], arguments, variables);
    // execvpe() runs files that the kernel cannot execute as shell scripts, as POSIX requires.
    if (!is_path || (errno == ENOEXEC && !is_compiled(arguments[0]))) {
      ::execvpe(arguments[0], arguments, variables);
    }
    fail(Stage::execute);
  }
};

StartError explain(const ChildSpec& spec, const StartFailure& failure) {
  const std::string words = std::strerror(failure.error);
  if (failure.stage == Stage::directory) {
    return StartError(cat("cannot change to directory '", spec.directory, "': ", words),
                      {.remedy = "start from a directory that exists on every host"}, 126);
  }
  const std::string& program = spec.command.front();
  const bool is_path = program.find('/') != std::string::npos;
  ErrorDetail detail;
  if (failure.error == ENOENT && is_path && ::access(program.c_str(), F_OK) == 0) {
    detail = {.cause = "the interpreter in its first line does not exist",
              .remedy = "correct its #! line"};
  } else if (failure.error == ENOENT) {
    detail.remedy = is_path ? "check the path" : "check the name, or use a path (./PROGRAM)";
    if (!is_path) detail.cause = "the program is not in PATH";
  } else if (failure.error == ENOEXEC) {
    detail = {.cause = "the program is damaged or built for another processor architecture",
              .remedy = "build it for this architecture"};
  } else if (failure.error == EACCES) {
    detail = {.cause = "the program is a directory or not executable",
              .remedy = cat("chmod +x ", program, ", or put its interpreter in front")};
  }
  return StartError(cat("cannot run '", program, "': ", words), detail,
                    failure.error == ENOENT ? 127 : 126);
}

}  // namespace

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    if (is_descriptor_shortage(errno)) throw descriptor_shortage("pipe", errno);
    throw system_error("pipe", errno);
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

pid_t start_child(const ChildSpec& spec) {
  std::vector<std::string> command = spec.command;
  std::vector<std::string> environment = merged_environment(spec.environment);
  std::vector<char*> arguments = pointers(command);
  std::vector<char*> variables = pointers(environment);
  Pipe report = make_pipe();
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const ChildStart launchpad{spec,       arguments.data(), variables.data(),  cpu_set_of(spec.pus),
                             null.get(), ::getpid(),       report.write.get()};
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw system_error(
        "start another process", errno,
        {.cause = errno == ENOMEM ? "this machine has too little memory for this number of ranks"
                                  : "the process limit of this user or container is reached",
         .remedy = "raise the limit (ulimit -u, pids.max of the cgroup, kernel.pid_max), or start "
                   "fewer ranks"});
  }
  if (pid == 0) launchpad.run();
  ::setpgid(pid, pid);  // parent and child both call setpgid(), to avoid a race
  report.write.reset();
  StartFailure failure{};
  ssize_t got;
  do {
    got = ::read(report.read.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof failure) {  // if exec succeeded, it closed the pipe
    ::waitpid(pid, nullptr, 0);
    throw explain(spec, failure);
  }
  return pid;
}

}  // namespace tutti::tool
