#include "transport/bootstrap/discovery/pmi.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap/discovery/job_sources.h"

namespace tutti::bootstrap {

namespace {

// The launcher's process on this host answers at once, unless the host is overloaded.
constexpr std::chrono::seconds kAnswersWithin{30};
constexpr std::chrono::seconds kFarewell{1};
// Replaces blanks in values, because PMI separates fields by blanks. Addresses and tokens do not
// contain this character.
constexpr char kBlank = '|';

Error failed(const std::string& what) {
  return Error(ErrorCode::bootstrap, "the launcher's PMI (PMI_FD) is unusable: " + what,
               {.cause = "another part of this process uses PMI as well, or the process was not "
                         "started by the launcher itself",
                .remedy = "set MASTER_ADDR and MASTER_PORT: then PMI provides the rank only"});
}

// Returns true if MPICH in the same process finalises PMI, which must be finalised only once.
bool mpi_finalizes() {
  using Initialized = int (*)(int*);
  const auto ask = reinterpret_cast<Initialized>(::dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int yes = 0;
  return ask != nullptr && ask(&yes) == 0 && yes != 0;
}

// This process as a client of PMI. There is one per process: after a finalize Hydra ignores it, and
// an exit without finalize counts as a crash.
class PmiClient {
 public:
  explicit PmiClient(int fd) : fd_(fd) {
    ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
    space_ = value_of(ask("cmd=get_my_kvsname", "my_kvsname"), "kvsname");
  }
  PmiClient(const PmiClient&) = delete;
  PmiClient& operator=(const PmiClient&) = delete;
  ~PmiClient() {
    // In a forked child the connection is the parent's.
    if (::getpid() != pid_ || mpi_finalizes()) return;
    try {
      send("cmd=finalize");
      while (!read_line(Deadline::after(kFarewell)).starts_with("cmd=finalize_ack")) {
      }
    } catch (const Error&) {  // the launcher has gone
    }
  }

  void put(const std::string& key, const std::string& value) {
    ask(cat("cmd=put kvsname=", space_, " key=", key, " value=", value), "put_result");
  }
  // Returns a value. The caller has ensured that it exists.
  std::string get(const std::string& key) {
    return value_of(ask(cat("cmd=get kvsname=", space_, " key=", key), "get_result"), "value");
  }
  void enter_barrier() {
    leave_barrier(Deadline::after(kAnswersWithin));  // the previous barrier
    send("cmd=barrier_in");
    barrier_ = true;
  }
  // Reads the reply to the barrier, because MPI in the same process would not understand it.
  void leave_barrier(const Deadline& deadline) {
    while (barrier_) note(read_line(deadline));
  }
  // Returns true if the barrier is complete. Never blocks.
  bool barrier_is_over() {
    pollfd polled{fd_, POLLIN, 0};
    if (barrier_ && (!pending_.empty() || ::poll(&polled, 1, 0) > 0)) {
      note(read_line(Deadline::after(kAnswersWithin)));
    }
    return !barrier_;
  }

 private:
  void send(const std::string& command) const {
    const std::string line = command + "\n";
    const ssize_t sent = ::send(fd_, line.data(), line.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(line.size())) {
      throw failed(sent < 0 ? cat(std::strerror(errno), " (errno ", errno, ")")
                            : "the socket's buffer is full");
    }
  }

  std::string read_line(const Deadline& deadline) {
    for (;;) {
      const size_t end = pending_.find('\n');
      if (end != std::string::npos) {
        const std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        return line;
      }
      pollfd polled{fd_, POLLIN, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
      const int ready = ::poll(&polled, 1, static_cast<int>(left.count()));
      if (ready == 0) throw failed("the launcher does not answer");
      if (ready < 0 && errno == EINTR) continue;
      char buffer[1024];
      const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        throw failed(got < 0 ? std::strerror(errno) : "the launcher has closed the connection");
      pending_.append(buffer, static_cast<size_t>(got));
    }
  }

  void note(const std::string& line) {
    if (line.starts_with("cmd=barrier_out")) barrier_ = false;
  }

  std::string ask(const std::string& command, const std::string& answer) {
    send(command);
    for (;;) {
      const std::string line = read_line(Deadline::after(kAnswersWithin));
      note(line);
      if (!line.starts_with("cmd=" + answer)) continue;
      const std::string code = value_of(line, "rc");
      // The value is omitted, because it may be a token.
      const std::string shown = command.substr(0, command.find(" value="));
      if (!code.empty() && code != "0") throw failed(cat("'", shown, "' led to '", line, "'"));
      return line;
    }
  }

  // Returns a field's value: in "cmd=a rc=0 value=x" the field "value" is "x".
  static std::string value_of(const std::string& line, const std::string& name) {
    for (const std::string& word : split(line, ' ')) {
      if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
    }
    return {};
  }

  const int fd_;
  const pid_t pid_ = ::getpid();
  std::string space_;
  std::string pending_;
  bool barrier_ = false;  // true: entered, and not known to be complete
};

PmiClient& client() {
  static PmiClient instance(
      job_number("PMI_FD", own_environment("PMI_FD").value_or(""), 0, 1 << 20));
  return instance;
}

int next_generation() {
  static std::atomic<int> generation = 0;
  return ++generation;
}

}  // namespace

PmiRendezvous::PmiRendezvous() : generation_(next_generation()) { client(); }

std::string PmiRendezvous::unique(const std::string& key) const {
  return cat("tutti-", generation_, "-", key);
}

void PmiRendezvous::set(const std::string& key, const std::string& value) {
  std::string word = value;
  std::ranges::replace(word, ' ', kBlank);
  client().put(unique(key), word);
  client().enter_barrier();
}

// Leaves the barrier that set() entered. If a rank has not entered it, the job cannot start anyway.
void PmiRendezvous::remove(const std::string&) {
  client().leave_barrier(Deadline::after(kFarewell));
}

std::optional<std::string> PmiRendezvous::get(const std::string& key) {
  if (!in_barrier_) client().enter_barrier();
  in_barrier_ = true;
  if (!client().barrier_is_over()) return std::nullopt;
  std::string value = client().get(unique(key));
  std::ranges::replace(value, kBlank, ' ');
  return value;
}

}  // namespace tutti::bootstrap
