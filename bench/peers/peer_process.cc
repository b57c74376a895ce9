#include "bench/peers/peer_process.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace tutti::bench {

namespace {

constexpr int kStartTimeoutMs = 30'000;
constexpr int kRunTimeoutMs = 600'000;
constexpr int kEndTimeoutMs = 5'000;

// Replaces the child process by the program.
[[noreturn]] void become(const std::vector<char*>& arguments) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // SIGTERM, on which launchers clean up
  // This rank may be bound to a core, which the peer's ranks must not inherit.
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int i = 0; i < ::sysconf(_SC_NPROCESSORS_CONF); ++i) CPU_SET(i, &all);
  ::sched_setaffinity(0, sizeof(all), &all);
  for (const char* variable : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    ::unsetenv(variable);
  }
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

// Returns a random name, because a process of another container may have the same pid in the same
// network namespace.
std::string unused_name(std::string_view peer) {
  std::random_device random;
  return cat("tutti-bench-", random(), "-", random(), "-", peer);
}

}  // namespace

PeerProcess::PeerProcess(const Peer& peer, int ranks, const std::string& transport)
    : peer_(peer), ranks_(ranks), socket_name_(unused_name(peer.name)), sockets_(ranks) {
  std::vector<std::string> command = peer.command(ranks, transport);
  command.push_back(socket_name_);
  command.push_back(cat(ranks));
  listen();
  start(command);
  for (int arrived = 0; arrived < ranks; ++arrived) accept_rank(arrived);
}

void PeerProcess::listen() {
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, socket_name_.data(), socket_name_.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + socket_name_.size());
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener_.get(), ranks_) != 0) {
    throw system_error("listening for the peer's ranks", errno);
  }
}

void PeerProcess::start(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw system_error("fork", errno);
  if (pid_ == 0) become(arguments);
  pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
}

void PeerProcess::accept_rank(int arrived) {
  pollfd waiting[] = {{listener_.get(), POLLIN, 0}, {pidfd_.get(), POLLIN, 0}};
  const bool in_time = ::poll(waiting, 2, kStartTimeoutMs) > 0;
  if ((waiting[0].revents & POLLIN) == 0) {
    throw Error(
        in_time ? ErrorCode::connection_lost : ErrorCode::timeout,
        cat(peer_.title, in_time ? " exited at startup" : " did not start", ": ", arrived, " of ",
            ranks_, " ranks started"),
        {.remedy = cat(
             "check whether it works without Tutti",
             peer_.launchers.empty() ? "" : cat(": ", peer_.launchers.front(), " -n 2 hostname"))});
  }
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::string hello = read_line(socket, kStartTimeoutMs);
  const int rank = std::atoi(hello.c_str());
  if (rank < 0 || rank >= ranks_) {
    throw Error(ErrorCode::internal, cat(peer_.title, "'s program replied '", hello, "'"));
  }
  sockets_[rank] = std::move(socket);
}

PeerProcess::~PeerProcess() {
  sockets_.clear();  // the end of file makes the peer's ranks exit
  if (pid_ < 0) return;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  if (::poll(&ended, 1, kEndTimeoutMs) != 1) ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string PeerProcess::read_line(const Fd& socket, int timeout_ms) const {
  std::string line;
  for (char c = 0;;) {
    pollfd waiting{socket.get(), POLLIN, 0};
    if (::poll(&waiting, 1, timeout_ms) != 1 || ::read(socket.get(), &c, 1) != 1) {
      throw Error(ErrorCode::connection_lost, cat(peer_.title, " exited or does not answer"),
                  {.remedy = "see its messages above, or remove it from --peers"});
    }
    if (c == '\n') return line;
    line += c;
  }
}

std::vector<double> PeerProcess::run(Collective collective, uint64_t count, int warm_up,
                                     int timed) {
  const std::string order = cat(name(collective), " ", count, " ", warm_up, " ", timed, "\n");
  for (const Fd& socket : sockets_) {
    if (::send(socket.get(), order.data(), order.size(), MSG_NOSIGNAL) < 0) {
      throw system_error(cat("talking to ", peer_.title), errno);
    }
  }
  std::istringstream words(read_line(sockets_[0], kRunTimeoutMs));
  std::vector<double> times;
  for (double time = 0; words >> time;) times.push_back(time);
  return times;
}

}  // namespace tutti::bench
