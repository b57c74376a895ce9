#include "tools/chaos/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/text.h"
#include "tools/chaos/down_link.h"
#include "tools/chaos/moved_clock.h"
#include "tools/chaos/processes.h"
#include "tools/chaos/scratch.h"
#include "tools/chaos/silent_pair.h"
#include "tools/launcher/child.h"

namespace tutti::tool::chaos {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{10};
// Time for which descendants may outlive the command.
constexpr milliseconds kGrace{2000};

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

// An event of a trial: the start of a timed fault, or the end of a temporary one.
struct FaultEvent {
  milliseconds at;
  Fault fault;
  bool begins = true;
};

std::deque<FaultEvent> blows_of(const Plan& plan) {
  std::deque<FaultEvent> blows;
  for (const Fault& fault : plan.faults) {
    if (fault.message > 0 || fault.kind == Kind::full) continue;
    const milliseconds at(fault.at_ms);
    blows.push_back({at, fault, true});
    if (fault.for_ms > 0) blows.push_back({at + milliseconds(fault.for_ms), fault, false});
  }
  std::ranges::stable_sort(blows, {}, &FaultEvent::at);
  return blows;
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> files;
  std::error_code none;  // ignored, because the folder might not exist
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) {
    files.insert(entry.path());
  }
  return files;
}

std::vector<std::string> in_directory(std::vector<std::string> command, const std::string& path) {
  constexpr std::string_view kPlace = "{dir}";
  for (std::string& word : command) {
    for (size_t at = word.find(kPlace); at != word.npos; at = word.find(kPlace, at + path.size())) {
      word.replace(at, kPlace.size(), path);
    }
  }
  return command;
}

uint64_t disk_bytes(const Plan& plan) {
  const auto full = std::ranges::find(plan.faults, Kind::full, &Fault::kind);
  return full == plan.faults.end() ? 0 : full->bytes;
}

class Trial {
 public:
  Trial(const Plan& plan, const Conditions& conditions)
      : plan_(plan),
        conditions_(conditions),
        scratch_(disk_bytes(plan)),
        clock_(has_fault(plan, Kind::clock)
                   ? std::make_unique<MovedClock>(scratch_.path() + ".clock")
                   : nullptr),
        files_before_(shared_memory_files()),
        blows_(blows_of(plan)) {}
  ~Trial() { kill_descendants(); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  Outcome run() {
    start();
    while (!ended_ && !outcome_.hung) {
      wait_and_read(kTick);
      collect();
      look_for_ranks();
      strike();
      outcome_.hung = !ended_ && Clock::now() - last_event_ > conditions_.limit;
    }
    outcome_.seconds = seconds_since(started_);
    outcome_.seconds_after = seconds_since(last_event_);
    if (!outcome_.hung) look_for_leftovers();
    kill_descendants();
    wait_and_read(milliseconds(0));
    return outcome_;
  }

 private:
  void start() {
    std::string faults;
    for (const Fault& fault : plan_.faults) {
      const std::string setting = as_setting(fault);
      if (!setting.empty()) faults += cat(faults.empty() ? "" : ",", setting);
      if (fault.kind == Kind::full) outcome_.struck.push_back(fault);
    }
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    ChildSpec spec{.command = in_directory(conditions_.command, scratch_.path()),
                   .environment = conditions_.environment,
                   .out = out.write.get(),
                   .err = err.write.get(),
                   .die_with_parent = true};
    if (!faults.empty()) spec.environment["TUTTI_FAULT"] = faults;
    if (clock_) spec.environment.merge(clock_->environment());
    command_ = start_child(spec);
    out_ = std::move(out.read);
    err_ = std::move(err.read);
    for (const Fd* fd : {&out_, &err_}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    started_ = last_event_ = Clock::now();
  }

  void wait_and_read(milliseconds at_most) {
    std::array<pollfd, 3> ready{
        {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}, {conditions_.signals->fd(), POLLIN, 0}}};
    ::poll(ready.data(), ready.size(), static_cast<int>(at_most.count()));
    read_all(out_, outcome_.out);
    read_all(err_, outcome_.err);
    for (const int number : conditions_.signals->take()) throw Stopped(number);
    look_for_messages();
  }

  static void read_all(Fd& fd, std::string& text) {
    std::array<char, 16384> block;
    ssize_t got = -1;
    while (fd && (got = ::read(fd.get(), block.data(), block.size())) > 0) {
      text.append(block.data(), static_cast<size_t>(got));
    }
    if (got == 0) fd.reset();
  }

  // Reaps the command and orphans that have ended.
  void collect() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != command_) continue;
      ended_ = true;
      outcome_.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }

  // Finds the processes of ranks until all have started.
  void look_for_ranks() {
    if (complete_) return;
    outcome_.ranks = std::max(outcome_.ranks, rank_processes().size());
    if (conditions_.ranks > 0 && outcome_.ranks >= conditions_.ranks) complete_ = Clock::now();
  }

  void strike() {
    const auto due = [&] {
      return complete_ && !blows_.empty() && Clock::now() - *complete_ >= blows_.front().at;
    };
    if (ended_ || !due()) return;
    const std::map<int, pid_t> ranks = rank_processes();
    for (; due(); blows_.pop_front()) {
      const FaultEvent& blow = blows_.front();
      if (!meets(blow, ranks)) continue;
      last_event_ = Clock::now();
      if (blow.begins) outcome_.struck.push_back(blow.fault);
    }
  }

  bool meets(const FaultEvent& blow, const std::map<int, pid_t>& ranks) {
    switch (blow.fault.kind) {
      case Kind::cut:
        return turn_link(blow);
      case Kind::drop:
        return part(blow);
      case Kind::lose:
        lose(blow.fault.hosts.front());
        return true;
      case Kind::clock:
        clock_->show(blow.begins ? blow.fault.shift_s : 0);
        return true;
      default:
        return signal(blow, ranks);
    }
  }

  bool turn_link(const FaultEvent& blow) {
    if (!blow.begins) return down_.erase(blow.fault.link) != 0;
    return down_.try_emplace(blow.fault.link, blow.fault.link).second;
  }

  bool part(const FaultEvent& blow) {
    const std::vector<std::string>& pair = blow.fault.hosts;
    if (!blow.begins) return silent_.erase(pair) != 0;
    return silent_.try_emplace(pair, pair[0], pair[1]).second;
  }

  // Loses a host: drops its packets before killing its processes, so that no peer sees them end.
  void lose(const std::string& host) {
    for (const std::string& other : conditions_.hosts) {
      if (other == host) continue;
      silent_.try_emplace({std::min(host, other), std::max(host, other)}, host, other);
    }
    for (const pid_t pid : descendants()) {
      if (is_in_namespace(pid, host)) ::kill(pid, SIGKILL);
    }
  }

  // Sends the signal of a fault. Returns false if the rank has ended.
  bool signal(const FaultEvent& blow, const std::map<int, pid_t>& ranks) const {
    const auto found = ranks.find(blow.fault.rank);
    if (blow.fault.rank != kLauncher && found == ranks.end()) return false;
    const pid_t pid = blow.fault.rank == kLauncher ? command_ : found->second;
    if (blow.fault.kind == Kind::kill) return kill_alive(pid);
    return ::kill(pid, blow.begins ? SIGSTOP : SIGCONT) == 0;
  }

  // Reads which message faults have struck from the ranks' output.
  void look_for_messages() {
    for (const Fault& fault : plan_.faults) {
      const std::string setting = as_setting(fault);
      if (setting.empty() || std::ranges::count(outcome_.struck, fault) > 0) continue;
      if (outcome_.err.find(cat("fault ", setting, " of TUTTI_FAULT")) == std::string::npos)
        continue;
      outcome_.struck.push_back(fault);
      last_event_ = Clock::now();
    }
  }

  // Returns files that the command left behind. New files that a process has mapped belong to
  // another job and are ignored.
  std::vector<std::string> files_left() const {
    std::vector<std::string> left;
    for (const std::string& file : shared_memory_files()) {
      if (!files_before_.contains(file) && !is_mapped(file)) left.push_back(file);
    }
    return left;
  }

  void look_for_leftovers() {
    const Deadline deadline = Deadline::after(kGrace);
    for (;;) {
      const std::vector<pid_t> processes = descendants();
      outcome_.left = files_left();
      for (const pid_t pid : processes) outcome_.left.push_back(cat("process ", in_words(pid)));
      if (outcome_.left.empty() || deadline.passed()) return;
      wait_and_read(kTick);
      if (!out_ && !err_) std::this_thread::sleep_for(kTick);
      collect();
    }
  }

  const Plan& plan_;
  const Conditions& conditions_;
  const Scratch scratch_;
  const std::unique_ptr<MovedClock> clock_;  // set if the plan moves the clock
  const std::set<std::string> files_before_;
  std::deque<FaultEvent> blows_;
  std::map<std::string, DownLink> down_;                   // key: name of the interface
  std::map<std::vector<std::string>, SilentPair> silent_;  // key: names of both hosts
  pid_t command_ = -1;
  Fd out_;
  Fd err_;
  Clock::time_point started_;
  Clock::time_point last_event_;  // time of the start, or of a fault's last beginning or end
  std::optional<Clock::time_point> complete_;
  bool ended_ = false;
  Outcome outcome_;
};

}  // namespace

Stopped::Stopped(int signal)
    : Error(ErrorCode::aborted, cat("ended by signal ", signal, " (", ::strsignal(signal), ")")),
      signal_(signal) {}

Outcome run_trial(const Plan& plan, const Conditions& conditions) {
  return Trial(plan, conditions).run();
}

}  // namespace tutti::tool::chaos
