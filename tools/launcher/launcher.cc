#include "tools/launcher/launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "base/deadline.h"
#include "base/error.h"
#include "base/host_name.h"
#include "base/random_token.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/launcher/agents.h"
#include "tools/launcher/child.h"
#include "tools/launcher/event_loop.h"
#include "tools/launcher/output.h"
#include "tools/launcher/signals.h"
#include "tools/launcher/tally.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/discovery/job_sources.h"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace tutti::tool {

namespace {

using std::chrono::milliseconds;

// Times after the first failure: during kGrace the other ranks may end by themselves with their own
// errors; then they get SIGTERM, and after kKillAfter SIGKILL. All ranks have ended within 5 s.
constexpr milliseconds kGrace{3000};
constexpr milliseconds kKillAfter{4000};
constexpr milliseconds kGiveUpAfter{4700};
// Time for ranks to clean up after Ctrl-C or SIGTERM. A second signal kills them at once.
constexpr milliseconds kCleanUp{30000};

// Returns the variables of this process that ranks of other hosts get: settings of Tutti, UCX and
// libfabric, and OMP_NUM_THREADS, but not those that describe this host only.
std::map<std::string, std::string> portable_environment() {
  std::map<std::string, std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const size_t equals = variable.find('=');
    const std::string_view name = variable.substr(0, equals);
    if (equals != std::string_view::npos && std::ranges::count(kOfOneHost, name) == 0 &&
        (name.starts_with("TUTTI_") || name.starts_with("UCX_") || name.starts_with("FI_") ||
         name == "OMP_NUM_THREADS")) {
      result[std::string(name)] = variable.substr(equals + 1);
    }
  }
  return result;
}

void check(const LaunchOptions& options) {
  if (options.command.empty()) {
    throw Error(ErrorCode::invalid_argument, "no program was given",
                {.remedy = "add it after --: `tutti run -n 4 -- ./program`"});
  }
  if (options.ranks < 1) {
    throw Error(ErrorCode::invalid_argument, cat(options.ranks, " ranks cannot be started"),
                {.remedy = "start at least one rank"});
  }
  const int64_t spares = settings().get_int("TUTTI_SPARES");
  if (spares >= options.processes()) {
    throw Error(ErrorCode::invalid_argument,
                cat("TUTTI_SPARES=", spares, " leaves no active ranks: the job has only ",
                    options.processes()),
                {.remedy = "unset TUTTI_SPARES; `tutti run --spares K` sets it for its ranks"});
  }
}

// Returns one job for each host that gets ranks.
std::vector<HostJob> assign_ranks(const LaunchOptions& options) {
  HostJob job;
  job.display = host_name();
  job.world_size = options.processes();
  job.command = options.command;
  std::vector<Host> hosts = options.hosts;
  if (hosts.empty()) {
    hosts.emplace_back();
    job.share_stdout = !options.prefix_lines && ::isatty(STDOUT_FILENO) == 1;
  } else {
    job.environment = portable_environment();
    job.directory = std::filesystem::current_path().string();
  }
  const std::string token = job_token();
  job.environment["TUTTI_TOKEN"] = token.empty() ? random_token() : token;  // never a file's path
  // Also set without spares, because this process may have inherited it from another job.
  job.environment["TUTTI_UNNEEDED_CODE"] = cat(options.spares > 0 ? kUnneededCode : 0);
  const std::vector<std::vector<int>> ranks = deal_ranks(options.processes(), hosts, options.map);
  std::vector<HostJob> jobs;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (ranks[i].empty()) continue;
    job.host = hosts[i].name;
    if (!job.host.empty()) {
      job.display = job.host;
      job.environment["TUTTI_HOST"] = job.host;  // name that its ranks use for it
    }
    job.ranks = ranks[i];
    jobs.push_back(job);
    if (!hosts[i].rack.empty()) jobs.back().environment["TUTTI_RACK"] = hosts[i].rack;
  }
  return jobs;
}

// Opens missing standard streams, so that a file which is opened later does not become one of them.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // becomes the lowest free descriptor
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

void say(const std::string& text) {
  const std::string line = "tutti run: " + text + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string describe_signal(int number) {
  return cat("signal ", number, " (", strsignal(number), ")");
}

class Launch : public AgentSink {
 public:
  Launch(const LaunchOptions& options, int restart)
      : tally_(options.processes(), options.min_ranks.value_or(options.ranks)),
        has_spares_(options.spares > 0),
        output_(options.processes(), options.prefix_lines),
        display_(static_cast<size_t>(options.processes())) {
    std::vector<HostJob> jobs = assign_ranks(options);
    for (HostJob& job : jobs) job.environment["TORCHELASTIC_RESTART_COUNT"] = cat(restart);
    for (const HostJob& job : jobs) {
      for (const int rank : job.ranks) display_[static_cast<size_t>(rank)] = job.display;
    }
    if (options.hosts.empty()) {
      // A background process group cannot read from a terminal.
      jobs.front().share_stdin = ::isatty(STDIN_FILENO) != 1;
      agents_->add_local(std::move(jobs.front()));
      return;
    }
    const auto fanout = static_cast<int>(settings().get_int("TUTTI_LAUNCH_FANOUT"));
    for (const HostJob& job : make_tree(std::move(jobs), fanout)) agents_->add_remote(job);
  }

  int run() {
    loop_.watch(signals_.fd(), [this] {
      for (int number : signals_.take()) on_signal(number);
    });
    agents_->listen();
    while (!over()) {
      loop_.run_once(output_.until_due(milliseconds(100)));
      output_.show_due();
      if (output_.broken()) on_signal(SIGPIPE);
      agents_->look_at_clock();
      escalate();
    }
    agents_.reset();
    output_.finish();
    const int code = conclude();
    // A signal between two starts finds no ranks, but prevents a restart.
    for (const int number : signals_.take()) {
      if (number == SIGINT || number == SIGTERM || number == SIGHUP) stop_signal_ = number;
    }
    return code;
  }

  // A job is not restarted after a stop signal or if its command cannot be run.
  bool may_be_started_again() const { return stop_signal_ == 0 && !has_no_command_; }

  void on_listening(const std::string& address, uint16_t port) override {
    started_ = true;
    agents_->start(address, port);
  }

  void on_output(int rank, Stream stream, std::string_view bytes, bool end) override {
    output_.add(rank, stream, bytes);
    if (end) output_.end(rank, stream);
  }

  void on_exit(const RankExit& exit) override {
    if (has_spares_ && exit.signal == 0 && exit.code == kUnneededCode) return tally_.add_unneeded();
    if (!exit.failed()) {
      if (!failed()) ended_well_.push_back(exit.rank);
      return tally_.add_success();
    }
    if (ending_) return;
    if (failed() && exit.by_itself()) return;  // this failure may be a consequence of the first one
    exit.by_itself() ? tally_.add_failure() : tally_.add_killed(1);
    if (does_without(exit.exit_code())) {
      signal_ranks(SIGCONT);  // a stopped rank could otherwise remain forever
      return say(describe(exit) + what_others_do());
    }
    if (!failed()) exit_code_ = exit.exit_code();
    failed_exits_.push_back(exit);
    if (failed_exits_.size() == 1) end_soon();
  }

  void on_failure(const std::string& text, int code, const std::vector<int>& lost) override {
    if (ending_) return;
    has_no_command_ = has_no_command_ || (lost.empty() && (code == 126 || code == 127));
    tally_.add_killed(std::ssize(lost));
    if (!lost.empty() && does_without(code)) return say(text + what_others_do());
    if (!failed()) exit_code_ = code;
    failures_.push_back(text);
    if (failures_.size() == 1 && failed_exits_.empty()) end_soon();
  }

 private:
  // Returns true if enough ranks survive a failure with this code, so that the job continues.
  bool does_without(int code) {
    if (!started_ || failed() || stop_signal_ != 0 || !tally_.can_succeed()) return false;
    last_code_ = code;
    return true;
  }

  std::string what_others_do() const {
    return tally_.any_running() ? "; the others continue" : "; the others had finished";
  }

  bool failed() const { return !failed_exits_.empty() || !failures_.empty(); }

  bool over() {
    if (gave_up_ || (!started_ && failed())) return true;
    return agents_->finished();
  }

  // Starts the shutdown after a failure, except after a stop signal, when ranks have longer to
  // clean up.
  void end_soon() {
    if (stop_signal_ != 0) return;
    signal_ranks(SIGCONT);  // stopped ranks must run to be able to exit
    terminate_at_ = Deadline::after(kGrace);
    kill_at_ = Deadline::after(kKillAfter);
    give_up_at_ = Deadline::after(kGiveUpAfter);
  }

  void kill_now() {
    ending_ = true;
    signal_ranks(SIGKILL);
    kill_at_ = Deadline::never();
    give_up_at_ = Deadline::after(kGiveUpAfter - kKillAfter);
  }

  void escalate() {
    if (terminate_at_.passed()) {
      ending_ = true;
      signal_ranks(SIGTERM);
      terminate_at_ = Deadline::never();
    }
    if (kill_at_.passed()) kill_now();
    gave_up_ = gave_up_ || give_up_at_.passed();
  }

  void on_signal(int number) {
    // If the broken pipe belongs to a rank, the code that writes to it handles the error.
    if (number == SIGPIPE && !output_.broken()) return;
    if (number == SIGUSR1 || number == SIGUSR2) return signal_ranks(number);
    if (number == SIGTSTP) return stand_still();
    if (stop_signal_ != 0) {
      if (number == SIGINT || number == SIGTERM) kill_now();
      return;
    }
    stop_signal_ = number;
    if (!started_) {
      gave_up_ = true;
      return;
    }
    signal_ranks(number == SIGPIPE ? SIGTERM : number);
    terminate_at_ = Deadline::never();
    kill_at_ = Deadline::after(kCleanUp);
    give_up_at_ = Deadline::never();
  }

  void signal_ranks(int number) { agents_->signal_ranks(number); }

  // Stops all ranks and this process until this process is continued. Called after Ctrl-Z, whose
  // signal a terminal sends to this process only.
  void stand_still() {
    signal_ranks(SIGSTOP);
    std::raise(SIGSTOP);
    signal_ranks(SIGCONT);
  }

  // Prints the final messages and returns the exit code.
  int conclude() const {
    if (stop_signal_ != 0) {
      if (stop_signal_ != SIGPIPE) say(cat("ended by ", describe_signal(stop_signal_)));
      return 128 + stop_signal_;
    }
    for (const RankExit& exit : failed_exits_) show_tail(exit.rank);
    for (const RankExit& exit : failed_exits_) {
      const bool is_first = &exit == &failed_exits_.front();
      say(describe(exit) + (is_first && exit.by_itself() ? who_ended_before() : ""));
    }
    for (const std::string& text : failures_) say(text);
    if (!failed() && started_ && !tally_.succeeded()) {
      say("all active ranks failed; only unused spares are left");
      return last_code_;
    }
    if (failed() || output_.lost() == 0) return exit_code_;
    say(system_error("cannot write to standard output", output_.lost()).what());
    return 1;
  }

  // Returns text about the ranks that exited with code 0 before the first failure, because a rank
  // that exited too early may be its cause.
  std::string who_ended_before() const {
    if (ended_well_.empty()) return "";
    std::vector<int> ranks = ended_well_;
    std::ranges::sort(ranks);
    return cat("; ", ranks.size() == 1 ? "rank " : "ranks ", rank_ranges(ranks),
               " had ended before, with exit code 0");
  }

  std::string describe(const RankExit& exit) const {
    return cat("rank ", exit.rank, " (", display_[static_cast<size_t>(exit.rank)], ", pid ",
               exit.pid, ") ",
               exit.signal != 0 ? cat("was killed by ", describe_signal(exit.signal))
                                : cat("ended with exit code ", exit.code),
               exit.why.empty() ? "" : " ", exit.why);
  }

  void show_tail(int rank) const {
    const std::string tail = output_.tail(rank);
    if (tail.empty()) return;
    say(cat("last lines of rank ", rank, " on standard error:"));
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, tail.data(), tail.size());
  }

  Tally tally_;
  bool has_spares_;
  int last_code_ = EXIT_FAILURE;  // exit code of the last tolerated failure
  Output output_;
  std::vector<std::string> display_;  // indexed by rank: name of its host in messages
  EventLoop loop_;
  // Declared before the agents, so that these signals are blocked before the first child starts.
  SignalInbox signals_{{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP}};
  std::optional<Agents> agents_{std::in_place, loop_, *this};
  bool started_ = false;
  bool has_no_command_ = false;  // true for exit code 126 or 127: the command cannot be run
  bool gave_up_ = false;
  int stop_signal_ = 0;
  bool ending_ = false;  // true if this process is ending the ranks
  // the first rank that failed, and ranks killed by signals between its failure and the shutdown
  std::vector<RankExit> failed_exits_;
  std::vector<int> ended_well_;        // ranks that exited with code 0 before the first failure
  std::vector<std::string> failures_;  // failures of agents
  int exit_code_ = 0;                  // exit code of the first failure
  Deadline terminate_at_ = Deadline::never();
  Deadline kill_at_ = Deadline::never();
  Deadline give_up_at_ = Deadline::never();
};

}  // namespace

int launch(const LaunchOptions& options) {
  check(options);
  // If this process is itself a rank, its ranks must not inherit its launcher's variables.
  ::unsetenv("TUTTI_LISTEN_FD");
  ::unsetenv("TUTTI_LAUNCHER_FD");
  open_standard_streams();
  try {
    for (int restart = 0;; ++restart) {
      Launch job(options, restart);
      const int code = job.run();
      if (code == 0 || !job.may_be_started_again() || restart == options.restarts) return code;
      say(cat("restarting the job (restart ", restart + 1, " of ", options.restarts, ")"));
    }
  } catch (const StartError& error) {  // thrown if the remote shell is missing
    say(error.what());
    return error.exit_code();
  }
}

bool is_launched() {
  const std::optional<FoundJob> found = find_job(own_environment);
  // An interactive Slurm step, for example, is a job of one rank in which users start other jobs.
  return found && (found->explicit_ranks || found->size != 1);
}

}  // namespace tutti::tool
