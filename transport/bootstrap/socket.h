// Stream sockets: addresses, listening, connecting and exact transfers with a deadline.
//
// Every descriptor is close-on-exec; every socket made here is non-blocking. Failures are
// tutti::Error with errno, the address, the likely cause and the remedy.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"

namespace tutti::bootstrap {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  std::string host() const;  // numeric, "10.0.0.1" or "fe80::1%eth0"
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_loopback() const;
  bool is_wildcard() const;
  std::string text() const;  // "10.0.0.1:29500", "[::1]:29500"
};

// "10.0.0.1:29500", "[::1]:29500"
std::string endpoint_text(const std::string& host, uint16_t port);

// All addresses of a name or a numeric address. Throws Error(bootstrap) when there is none.
std::vector<SocketAddress> resolve(const std::string& host, uint16_t port);
// The first address of a network interface (IPv4 before IPv6), else resolve().
std::vector<SocketAddress> resolve_interface(const std::string& interface_or_address,
                                             uint16_t port);
// An address of this host that other hosts are likely to reach: that of the default route, else the
// first one that is up, else loopback.
SocketAddress reachable_address();
// An address in the abstract namespace of unix sockets.
SocketAddress unix_address(std::string_view abstract_name);

SocketAddress local_address(int socket);
SocketAddress peer_address(int socket);

Fd listen_on(const SocketAddress& address);

// Starts a connection without waiting: 0 or EINPROGRESS with `socket` to be polled for POLLOUT and
// then end_connect(), or the errno of the failure. end_connect() returns 0 or the errno.
int begin_connect(const SocketAddress& address, Fd& socket);
int end_connect(int socket);

// One attempt. 0 with `socket` connected, or the errno of the failure; ETIMEDOUT when `deadline`
// passed.
int try_connect(const SocketAddress& address, const Deadline& deadline, Fd& socket);

enum class Transfer { complete, closed, timed_out };
// `closed` covers EOF and every socket error; `error` (if given) gets its errno, 0 for EOF.
Transfer read_exactly(int socket, std::span<std::byte> into, const Deadline& deadline,
                      int* error = nullptr);
Transfer write_exactly(int socket, std::span<const std::byte> bytes, const Deadline& deadline,
                       int* error = nullptr);
// One frame's body. An over-long frame counts as closed.
Transfer read_frame(int socket, std::string& body, size_t limit, const Deadline& deadline,
                    int* error = nullptr);

// True when `events` came; false when the deadline passed.
bool wait_for(int fd, short events, const Deadline& deadline);

void set_no_delay(int socket);
// What remains of the connection shall not keep its port from a later listener.
void set_reuse(int socket);
// An idle connection of which the other side knows nothing any more breaks within about five
// seconds. Every socket of begin_connect() has it.
void set_keepalive(int socket);
// The same for one that is not idle. Not for data connections: it would also end those whose reader
// is merely slow.
void set_user_timeout(int socket);

// "Connection reset by peer", or "closed by the other side" for 0.
std::string explain_close(int error);

}  // namespace tutti::bootstrap
