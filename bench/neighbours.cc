#include "bench/neighbours.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>

#include "base/control_groups.h"
#include "base/error.h"
#include "base/text.h"

namespace tutti::bench {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void compute(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // this process's parent ended before prctl()
  volatile uint64_t rounds = 0;
  while (true) rounds = rounds + 1;
}

bool write(const fs::path& file, const std::string& text) {
  std::ofstream stream(file);
  return static_cast<bool>(stream << text << std::flush);
}

bool enter(const fs::path& group) { return write(group / "cgroup.procs", cat(::getpid())); }

bool limit(const fs::path& group, bool is_first_version, double processors) {
  constexpr int kPeriodUs = 100'000;
  const auto time = static_cast<int64_t>(processors * kPeriodUs);
  if (!is_first_version) return write(group / "cpu.max", cat(time, ' ', kPeriodUs));
  return write(group / "cpu.cfs_period_us", cat(kPeriodUs)) &&
         write(group / "cpu.cfs_quota_us", cat(time));
}

}  // namespace

BusyProcesses::BusyProcesses(int count) {
  const pid_t own = ::getpid();
  for (int i = 0; i < count; ++i) {
    const pid_t process = ::fork();
    if (process == 0) compute(own);
    if (process < 0) {
      const int error = errno;
      stop();
      throw system_error(cat("cannot start busy process ", i + 1, " of ", count), error,
                         {.cause = "a limit of processes (ulimit -u)"});
    }
    processes_.push_back(process);
  }
}

BusyProcesses::~BusyProcesses() { stop(); }

void BusyProcesses::stop() {
  for (const pid_t process : processes_) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  processes_.clear();
}

// Creates a limited group. In version 2 a group with processes cannot contain limited groups,
// except the root group, so all groups from this process's own up to the root are tried.
ProcessorQuota::ProcessorQuota(double processors) {
  const std::vector<ControlGroup> own = control_groups("cpu");
  for (const ControlGroup& parent : own) {
    std::error_code error;
    group_ = parent.path / cat("tutti-bench-", ::getpid());
    home_ = std::ranges::find(own, parent.is_first_version, &ControlGroup::is_first_version)->path;
    if (!fs::create_directory(group_, error)) continue;
    if (!parent.is_first_version) write(parent.path / "cgroup.subtree_control", "+cpu");
    if (limit(group_, parent.is_first_version, processors) && enter(group_)) return;
    fs::remove(group_, error);
  }
  throw Error(
      ErrorCode::unsupported, cat("no control group with ", processors, " processors"),
      {.cause =
           "this process may not create one under /sys/fs/cgroup, or the cpu controller is missing",
       .remedy = "run as root outside of containers"});
}

ProcessorQuota::~ProcessorQuota() {
  enter(home_);
  std::error_code error;
  fs::remove(group_, error);
}

}  // namespace tutti::bench
