#include "tools/launcher/local_agent.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/descriptor_limit.h"
#include "base/settings.h"
#include "base/text.h"
#include "topology/host.h"

namespace tutti::tool {

namespace {

// Time to wait for output of processes that outlive the ranks (a `tee` in the same group).
constexpr std::chrono::milliseconds kDrain{1000};

// Descriptors per rank: pidfd, output, errors and notices.
constexpr size_t kDescriptorsPerRank = 4;
constexpr size_t kDescriptorsToStart = 64;

std::string notice(const RankExit& exit) {
  return exit.signal != 0 ? cat("signal ", exit.rank, " ", exit.pid, " ", exit.signal,
                                exit.why.empty() ? "" : " ", exit.why, "\n")
                          : cat("exit ", exit.rank, " ", exit.pid, " ", exit.code, "\n");
}

}  // namespace

LocalAgent::LocalAgent(EventLoop& loop, AgentSink& sink, HostJob job)
    : loop_(loop), sink_(sink), job_(std::move(job)) {
  ranks_.reserve(job_.ranks.size());  // callbacks point to its elements, which must not move
}

LocalAgent::~LocalAgent() {
  end_process_groups();
  for (const Rank& rank : ranks_) {
    for (const Fd* fd : {&rank.pidfd, &rank.out, &rank.err}) {
      if (*fd) loop_.unwatch(fd->get());
    }
  }
}

void LocalAgent::listen() {
  std::vector<std::string> interfaces = split(settings().get_string("TUTTI_INTERFACE"), ',');
  interfaces.resize(1);  // the first interface is that of the bootstrap
  const std::string address =
      job_.host.empty() ? "127.0.0.1" : reachable_address(job_.host, interfaces[0]);
  listener_ = listen_on(address);
  sink_.on_listening(listener_->address, listener_->port);
}

void LocalAgent::start(const std::string& master_address, uint16_t master_port) {
  master_address_ = master_address;
  master_port_ = master_port;
  if (!job_.environment.contains("OMP_NUM_THREADS") && std::getenv("OMP_NUM_THREADS") == nullptr) {
    const int threads = std::max(1, this_host().allowed_cores() / local_ranks());
    job_.environment["OMP_NUM_THREADS"] = std::to_string(threads);
  }
  try {
    start_all();
  } catch (const StartError& error) {
    fail(error, error.exit_code());
  } catch (const Error& error) {
    const std::string which = cat("rank ", job_.ranks[static_cast<size_t>(running_)]);
    fail(Error(error.code(), cat("cannot start ", which, ": ", error.what())), EXIT_FAILURE);
  }
  listener_.reset();  // rank 0 has its own copy of the descriptor now
}

void LocalAgent::start_all() {
  rlimit open_files{};
  ::getrlimit(RLIMIT_NOFILE, &open_files);
  // A launcher needs many descriptors. Its ranks keep the original limit, because a program may
  // fail in select() with a higher limit than it expects.
  const size_t ranks = job_.ranks.size();
  if (!reserve_descriptors(kDescriptorsPerRank * ranks + kDescriptorsToStart)) {
    throw descriptor_shortage(cat("the pipes of ", ranks, " ranks"), EMFILE);
  }
  const Placement placement = place_ranks(local_ranks());
  for (int i = 0; i < local_ranks(); ++i) {
    ChildSpec spec = describe(i, placement);
    spec.open_files = open_files;
    start_rank(i, std::move(spec));
  }
}

void LocalAgent::fail(const Error& error, int exit_code) {
  end_process_groups();
  const std::string where = job_.host.empty() ? "" : cat("host ", job_.host, ": ");
  sink_.on_failure(where + error.what(), exit_code, {});
}

ChildSpec LocalAgent::describe(int local_rank, const Placement& placement) const {
  const int rank = job_.ranks[static_cast<size_t>(local_rank)];
  ChildSpec spec;
  spec.command = job_.command;
  spec.environment = job_.environment;
  spec.directory = job_.directory;
  spec.pus = placement.pus[static_cast<size_t>(local_rank)];
  if (rank == 0 && job_.share_stdin) spec.in = STDIN_FILENO;
  spec.die_with_parent = true;
  spec.guard = &guard_;
  spec.environment["RANK"] = std::to_string(rank);
  spec.environment["WORLD_SIZE"] = std::to_string(job_.world_size);
  spec.environment["LOCAL_RANK"] = std::to_string(local_rank);
  spec.environment["LOCAL_WORLD_SIZE"] = std::to_string(local_ranks());
  spec.environment["MASTER_ADDR"] = master_address_;
  spec.environment["MASTER_PORT"] = std::to_string(master_port_);
  // Also set if it is unknown, because this process may have inherited it from another job.
  spec.environment["TUTTI_DOMAIN"] = to_text(placement.domains[static_cast<size_t>(local_rank)]);
  if (listener_ && rank == 0) {
    spec.inherited.push_back(listener_->socket.get());
    spec.environment["TUTTI_LISTEN_FD"] = std::to_string(listener_->socket.get());
  }
  return spec;
}

void LocalAgent::start_rank(int local_rank, ChildSpec spec) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  Pipe notices = make_pipe();
  // A rank that does not read its notices must not block the launcher.
  ::fcntl(notices.write.get(), F_SETFL, O_NONBLOCK);
  spec.out = job_.share_stdout ? -1 : out.write.get();
  spec.err = err.write.get();
  spec.inherited.push_back(notices.read.get());
  spec.environment["TUTTI_LAUNCHER_FD"] = std::to_string(notices.read.get());

  const pid_t pid = start_child(spec);
  ranks_.push_back({.number = job_.ranks[static_cast<size_t>(local_rank)], .pid = pid});
  Rank& rank = ranks_.back();
  rank.pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec
  if (!rank.pidfd) {
    throw system_error("pidfd_open", errno, {.remedy = "Tutti needs Linux 5.3 or newer"});
  }
  rank.out = std::move(out.read);
  rank.err = std::move(err.read);
  rank.notices = std::move(notices.write);
  open_streams_ += 2;
  ++running_;
  loop_.watch(rank.pidfd.get(), [this] { look_for_exits(); });
  loop_.watch(rank.out.get(), [this, &rank] { read_output(rank, Stream::out); });
  loop_.watch(rank.err.get(), [this, &rank] { read_output(rank, Stream::err); });
}

void LocalAgent::read_output(Rank& rank, Stream stream) {
  Fd& fd = stream == Stream::out ? rank.out : rank.err;
  char buffer[64 * 1024];
  const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    loop_.unwatch(fd.get());
    fd.reset();
    --open_streams_;
  }
  const size_t length = got > 0 ? static_cast<size_t>(got) : 0;
  sink_.on_output(rank.number, stream, {buffer, length}, got <= 0);
}

void LocalAgent::look_for_exits() {
  std::vector<RankExit> exits;
  for (Rank& rank : ranks_) {
    siginfo_t info{};
    const int options = WEXITED | WNOHANG | WNOWAIT;
    if (rank.ended || ::waitid(P_PID, static_cast<id_t>(rank.pid), &info, options) != 0 ||
        info.si_pid == 0) {
      continue;
    }
    rank.ended = true;
    loop_.unwatch(rank.pidfd.get());
    rank.pidfd.reset();
    --running_;
    const bool exited = info.si_code == CLD_EXITED;
    exits.push_back({.rank = rank.number,
                     .pid = rank.pid,
                     .signal = exited ? 0 : info.si_status,
                     .code = exited ? info.si_status : 0,
                     .why = rank.why});
  }
  const auto was_killed = [](const RankExit& exit) { return exit.signal == SIGKILL; };
  const std::string why =
      memory_.explain(static_cast<int>(std::ranges::count_if(exits, was_killed)));
  for (RankExit& exit : exits) {
    if (was_killed(exit) && exit.why.empty()) exit.why = why;
  }
  std::ranges::stable_sort(exits, {}, [](const RankExit& exit) { return exit.signal == 0; });
  for (const RankExit& exit : exits) tell(exit);
  for (const RankExit& exit : exits) sink_.on_exit(exit);
  if (running_ == 0) drained_ = Deadline::after(kDrain);
}

void LocalAgent::tell(const RankExit& exit) {
  ++ended_;
  const std::string line = notice(exit);
  for (const Rank& rank : ranks_) {
    if (rank.ended || rank.number == exit.rank) continue;
    // Fails if the rank has closed its end or does not read; notices are optional.
    [[maybe_unused]] const ssize_t written = ::write(rank.notices.get(), line.data(), line.size());
  }
}

void LocalAgent::signal_ranks(int number) {
  if (reaped_) return;
  for (const Rank& rank : ranks_) ::kill(-rank.pid, number);
}

// Ends stopped ranks once all others have ended. A rank that is stopped after its last call delays
// no other rank, so no rank reports it.
void LocalAgent::end_those_that_stand_still() {
  const auto stands_still = [](const Rank& rank) {
    siginfo_t info{};
    const int options = WSTOPPED | WNOHANG | WNOWAIT;
    return ::waitid(P_PID, static_cast<id_t>(rank.pid), &info, options) == 0 && info.si_pid != 0;
  };
  const auto limit = settings().get_duration("TUTTI_TIMEOUT");
  const bool are_last = ended_ > 0 && ended_ + running_ == job_.world_size;
  if (limit.count() == 0 || !are_last || !std::ranges::all_of(ranks_, [&](const Rank& rank) {
        return rank.ended || stands_still(rank);
      })) {
    still_since_.reset();
    return;
  }
  if (!still_since_) still_since_ = Clock::now();
  if (Clock::now() - *still_since_ < limit) return;
  for (Rank& rank : ranks_) {
    if (rank.ended || !rank.why.empty()) continue;
    rank.why = cat("by its launcher: it was stopped for ",
                   std::chrono::duration<double>(limit).count(), " s after all others had ended");
    ::kill(-rank.pid, SIGKILL);
  }
}

bool LocalAgent::finished() {
  if (running_ > 0) {
    end_those_that_stand_still();
    return false;
  }
  if (open_streams_ > 0 && !drained_.passed() && !reaped_) return false;
  end_process_groups();
  return true;
}

void LocalAgent::end_process_groups() {
  signal_ranks(SIGKILL);
  if (reaped_) return;
  reaped_ = true;
  running_ = 0;
  for (Rank& rank : ranks_) {
    int status = 0;
    while (::waitpid(rank.pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
}

}  // namespace tutti::tool
