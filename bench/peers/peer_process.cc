#include "bench/peers/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace tutti::bench {

namespace {

constexpr int kStartTimeoutMs = 30'000;
constexpr int kRunTimeoutMs = 120'000;

bool is_on_path(const std::string& program) {
  const char* path = ::getenv("PATH");
  for (const std::string& folder : split(path != nullptr ? path : "", ':')) {
    if (::access(cat(folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Beside this program when installed, in the build tree otherwise.
std::string peer_program(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& candidate :
       {here / ("tutti_" + name + "_peer"), here / "../bench/peers" / (name + "_peer")}) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.lexically_normal().string();
  }
  return {};
}

std::vector<std::string> openmpi_command(const std::string& program, int ranks,
                                         const std::string& transport) {
  const bool crowded = ranks > ::sysconf(_SC_NPROCESSORS_ONLN);
  std::vector<std::string> command = {
      "mpirun",    "--allow-run-as-root",    "--oversubscribe", "-n", std::to_string(ranks),
      "--bind-to", crowded ? "none" : "core"};
  const auto add = [&](std::initializer_list<const char*> words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  if (crowded) add({"--mca", "mpi_yield_when_idle", "1"});
  if (transport == "tcp") {
    add({"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"});
  } else {
    add({"--mca", "pml", "ob1", "--mca", "btl", "vader,self"});
  }
  command.push_back(program);
  return command;
}

}  // namespace

PeerProcess::PeerProcess(const std::string& name, int ranks, const std::string& transport)
    : name_(name), ranks_(ranks) {
  if (name != "openmpi") {
    throw Error(ErrorCode::unsupported, cat("there is no peer '", name, "'"),
                {.remedy = "use --peers openmpi"});
  }
  const std::string program = peer_program(name);
  if (program.empty() || !is_on_path("mpirun")) {
    throw Error(
        ErrorCode::unsupported, "Open MPI was not there when this program was built, or is not now",
        {.remedy = "apt-get install openmpi-bin libopenmpi-dev, then: bazel sync --configure && "
                   "bazel build -c opt //tools:tutti"});
  }
  socket_name_ = cat("tutti-bench-", ::getpid(), "-", name);
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, socket_name_.data(), socket_name_.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + socket_name_.size());
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener_.get(), ranks) != 0) {
    throw system_error("listening for the peer's ranks", errno);
  }
  std::vector<std::string> command = openmpi_command(program, ranks, transport);
  command.push_back(socket_name_);
  start(command);
}

void PeerProcess::start(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw system_error("fork", errno);
  if (pid_ == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // This rank may be bound to a core; the peer's ranks are not to share it.
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
  sockets_.resize(ranks_);
  for (int arrived = 0; arrived < ranks_; ++arrived) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, kStartTimeoutMs) != 1) {
      throw Error(ErrorCode::timeout,
                  cat(name_, ": only ", arrived, " of ", ranks_, " ranks came up"),
                  {.remedy = cat("run it by hand to see why: ", command[0], " -n 2 hostname")});
    }
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string hello = read_line(socket, kStartTimeoutMs);
    const int rank = std::atoi(hello.c_str());
    if (rank < 0 || rank >= ranks_) throw Error(ErrorCode::internal, cat(name_, " said ", hello));
    sockets_[rank] = std::move(socket);
  }
}

PeerProcess::~PeerProcess() {
  sockets_.clear();  // its ranks see the end of their orders and finish
  for (int i = 0; i < 100 && pid_ > 0; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    ::usleep(50'000);
  }
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

std::string PeerProcess::read_line(const Fd& socket, int timeout_ms) {
  std::string line;
  for (char c = 0;;) {
    pollfd waiting{socket.get(), POLLIN, 0};
    if (::poll(&waiting, 1, timeout_ms) != 1 || ::read(socket.get(), &c, 1) != 1) {
      throw Error(ErrorCode::connection_lost, cat("peer ", name_, " ended or does not answer"));
    }
    if (c == '\n') return line;
    line += c;
  }
}

std::vector<double> PeerProcess::run(uint64_t bytes, int warm_up, int timed) {
  const std::string order = cat("all_reduce ", bytes, " ", warm_up, " ", timed, "\n");
  for (const Fd& socket : sockets_) {
    if (::send(socket.get(), order.data(), order.size(), MSG_NOSIGNAL) < 0) {
      throw system_error(cat("talking to peer ", name_), errno);
    }
  }
  std::istringstream words(read_line(sockets_[0], kRunTimeoutMs));
  std::vector<double> times;
  for (double time = 0; words >> time;) times.push_back(time);
  return times;
}

}  // namespace tutti::bench
