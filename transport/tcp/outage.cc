#include "transport/tcp/outage.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>

#include "base/text.h"
#include "transport/tcp/socket_ends.h"

namespace tutti {

namespace {

// Returns the socket's state; nullopt if nothing is in flight. If the local interface is down,
// nothing counts as sent: the system only probes. A reader with a full window confirms each probe
// at once.
std::optional<tcp_info> info_of_busy(int socket) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      (info.tcpi_unacked == 0 && info.tcpi_probes == 0)) {
    return std::nullopt;
  }
  return info;
}

}  // namespace

bool Outage::in_flight(int socket) { return info_of_busy(socket).has_value(); }

std::string Outage::look(int socket, int64_t now_ns, std::chrono::milliseconds longest) {
  const std::optional<tcp_info> info = info_of_busy(socket);
  if (!info) {
    since_ns_ = 0;
    return {};
  }
  if (since_ns_ == 0) since_ns_ = now_ns;
  const std::chrono::milliseconds unconfirmed(info->tcpi_last_ack_recv);
  if (std::chrono::nanoseconds(now_ns - since_ns_) < longest || unconfirmed < longest) return {};
  return cat("nothing sent from ", own_end(socket), " to ", peer_end(socket),
             " has been confirmed for ", std::chrono::duration<double>(longest).count(),
             " s; likely cause: the network between these addresses is down; "
             "remedy: repair it, or select other interfaces by TUTTI_INTERFACE");
}

}  // namespace tutti
