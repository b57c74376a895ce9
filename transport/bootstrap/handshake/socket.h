// ByteStream sockets: addresses, listening, connecting and exact transfers with a deadline.
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
#include "transport/stream/byte_stream.h"

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
// True where `addresses`, those of `name`, lead nowhere but back, although `name` is not one for
// that: it is this host's own (`own_name`), which /etc/hosts maps to loopback (Debian: 127.0.1.1).
bool is_hidden_by_loopback(const std::string& name, const std::string& own_name,
                           const std::vector<SocketAddress>& addresses);
// resolve() for the host of rank 0. The own name of this host means an address that other hosts can
// reach, even where this one knows it as loopback: that of `interface`, or if that is empty
// reachable_address(). All ranks of rank 0's host must ask so, and find the same.
std::vector<SocketAddress> resolve_master(const std::string& host, uint16_t port,
                                          const std::string& interface);
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

// Something else to hear while one waits for a socket, such as the launcher's pipe.
class Aside {
 public:
  virtual ~Aside() = default;
  virtual int fd() const = 0;  // -1: there is nothing to hear any more
  // Called when fd() is readable. Throws to end the wait.
  virtual void hear() = 0;
};

// How long one waits, and what for besides.
struct Wait {
  Wait(const Deadline& until, Aside* besides = nullptr)
      : deadline(until), aside(besides) {}  // NOLINT
  Deadline deadline;
  Aside* aside;
};

// Starts a connection without waiting: 0 or EINPROGRESS with `socket` to be polled for POLLOUT and
// then end_connect(), or the errno of the failure. end_connect() returns 0 or the errno.
// From `own`, or if that is null from the address that routes there.
int begin_connect(const SocketAddress& address, Fd& socket, const SocketAddress* own = nullptr);
int end_connect(int socket);

// One attempt. 0 with `socket` connected, or the errno of the failure; ETIMEDOUT when the time is
// up.
int try_connect(const SocketAddress& address, const Wait& wait, Fd& socket);

enum class Transfer { complete, closed, timed_out };
// `closed` covers EOF and every socket error; `error` (if given) gets its errno, 0 for EOF.
Transfer read_exactly(int socket, std::span<std::byte> into, const Wait& wait,
                      int* error = nullptr);
Transfer write_exactly(int socket, std::span<const std::byte> bytes, const Wait& wait,
                       int* error = nullptr);
Transfer write_exactly(ByteStream& stream, std::span<const std::byte> bytes, const Wait& wait,
                       int* error = nullptr);
// One frame's body. An over-long frame counts as closed. The stream may have taken more from its
// socket, of which poll() knows nothing.
Transfer read_frame(ByteStream& stream, std::string& body, size_t limit, const Wait& wait,
                    int* error = nullptr);

// True when `events` came; false when the time is up. Of fd -1 nothing comes.
bool wait_for(int fd, short events, const Wait& wait);

void set_no_delay(int socket);
// What remains of the connection shall not keep its port from a later listener.
void set_reuse(int socket);
// An idle connection of which the other side knows nothing any more breaks within about the network
// timeout. Every socket of begin_connect() has it.
void set_keepalive(int socket);
// Takes that back: a data connection that is idle while its link is busy with others may well miss
// a few probes.
void clear_keepalive(int socket);
// What is sent, or a probe of an idle connection, may go unanswered for the network timeout. Not
// for data connections: it would also end those whose reader is merely slow.
void set_user_timeout(int socket);

// "Connection reset by peer"; "closed by the other side" for 0; that somebody is between the two
// for EBADMSG, as of a ByteStream.
std::string explain_close(int error);

}  // namespace tutti::bootstrap
