#include "transport/bootstrap/discovery/meeting.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/deadline.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tutti::bootstrap {

namespace {

// Takes the launcher's listening socket, which keeps the port reserved. If this process has already
// used it for a job, the port is bound again.
std::optional<Fd> adopt_listener(const Job& job) {
  int listening = 0;
  socklen_t length = sizeof(listening);
  if (job.listen_fd < 0 ||
      ::getsockopt(job.listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 ||
      listening == 0) {
    return std::nullopt;
  }
  if (job.master_port != 0 && local_address(job.listen_fd).port() != job.master_port) {
    return std::nullopt;
  }
  set_reuse(job.listen_fd);
  ::fcntl(job.listen_fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(job.listen_fd, F_SETFL, ::fcntl(job.listen_fd, F_GETFL) | O_NONBLOCK);
  return Fd(job.listen_fd);
}

constexpr std::chrono::seconds kSayWhoHasNotCome{10};
constexpr std::chrono::milliseconds kMeetingPause{100};

// Resolves rank 0's name, and retries. The cluster's directory may list this host's own name only
// some time after the process has started: Kubernetes adds pods once they run.
std::vector<SocketAddress> resolve_patiently(const Job& job) {
  const Deadline deadline = Deadline::after(job.init_timeout);
  const Deadline say_at = Deadline::after(kSayWhoHasNotCome);
  for (bool logged = false;;) {
    try {
      return resolve_master(job.master_address, job.master_port, job.interface);
    } catch (const Error& error) {
      if (deadline.passed()) throw;
      if (!logged && say_at.passed()) log(LogLevel::warning, cat("still trying: ", error.what()));
      logged = logged || say_at.passed();
    }
    wait_for(-1, 0, {Deadline::after(kMeetingPause)});
  }
}

}  // namespace

std::string rank_zero_value(const SocketAddress& address, const std::string& token) {
  return cat(address.host(), " ", address.port(), token.empty() ? "" : " ", token);
}

SocketAddress parse_rank_zero(const std::string& value) {
  std::istringstream text(value);
  std::string host;
  uint16_t port = 0;
  if (text >> host >> port) return resolve(host, port).front();
  // The third word is omitted, because it may be a token.
  const std::string shown =
      value.substr(0, value.find(' ', std::min(host.size() + 1, value.size())));
  throw Error(ErrorCode::bootstrap, cat("'", shown, "' is not an address of rank 0"),
              {.cause = "another program uses the same rendezvous"});
}

std::string token_in_rank_zero(const std::string& value) {
  std::istringstream text(value);
  std::string word;
  text >> word >> word >> word;
  return text ? word : "";
}

std::shared_ptr<Rendezvous> rendezvous_of(const Job& job) {
  if (job.rendezvous) return job.rendezvous;
  if (job.rendezvous_file.empty()) return nullptr;
  return std::make_shared<FileRendezvous>(job.rendezvous_file);
}

std::vector<SocketAddress> on_all_ports(const Job& job, std::vector<SocketAddress> addresses) {
  const size_t hosts = addresses.size();
  for (int i = 1; i < job.master_ports; ++i) {
    for (size_t host = 0; host < hosts; ++host) {
      addresses.push_back(addresses[host]);
      addresses.back().set_port(static_cast<uint16_t>(job.master_port + i));
    }
  }
  return addresses;
}

Fd listen_as_rank_zero(const Job& job) {
  if (std::optional<Fd> adopted = adopt_listener(job)) return std::move(*adopted);
  std::vector<SocketAddress> addresses;
  if (!job.interface.empty()) {
    addresses = on_all_ports(job, resolve_interface(job.interface, job.master_port));
  } else if (rendezvous_of(job)) {
    addresses = {reachable_address()};
  } else {
    addresses = on_all_ports(job, resolve_patiently(job));
  }
  for (size_t i = 0;; ++i) {
    try {
      return listen_on(addresses[i]);
    } catch (const Error& error) {
      if (i + 1 < addresses.size()) continue;
      const std::string all = cat("rank 0 cannot listen on any of ", meeting_place(job), ": ");
      throw Error(ErrorCode::bootstrap, (job.master_ports > 1 ? all : "") + error.what());
    }
  }
}

}  // namespace tutti::bootstrap
