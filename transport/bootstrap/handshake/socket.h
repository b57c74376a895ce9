// Socket functions: addresses, listening, connecting, and exact transfers with a deadline.
//
// Every descriptor is close-on-exec; every socket created here is non-blocking. Failures are
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

// Returns all addresses of a name or a numeric address. Throws Error(bootstrap) if there is none.
std::vector<SocketAddress> resolve(const std::string& host, uint16_t port);
// True if `addresses`, those of `name`, are all loopback although `name` is not a loopback name but
// this host's own (`own_name`), which /etc/hosts maps to loopback (Debian: 127.0.1.1).
bool is_hidden_by_loopback(const std::string& name, const std::string& own_name,
                           const std::vector<SocketAddress>& addresses);
// Resolves the host of rank 0. This host's own name resolves to an address that other hosts can
// reach, even if /etc/hosts maps it to loopback: that of `interface`, or if that is empty
// reachable_address(). All ranks on rank 0's host must call this function and get the same result.
std::vector<SocketAddress> resolve_master(const std::string& host, uint16_t port,
                                          const std::string& interface);
// Returns the first address of a network interface (IPv4 before IPv6), else resolve().
std::vector<SocketAddress> resolve_interface(const std::string& interface_or_address,
                                             uint16_t port);
// Returns an address of this host that other hosts can probably reach: that of the default route,
// else of the first interface that is up, else loopback.
SocketAddress reachable_address();
// Builds an address in the abstract namespace of unix sockets.
SocketAddress unix_address(std::string_view abstract_name);

SocketAddress local_address(int socket);
SocketAddress peer_address(int socket);

Fd listen_on(const SocketAddress& address);

// A second source of events during a wait for a socket, such as the launcher's pipe.
class Aside {
 public:
  virtual ~Aside() = default;
  virtual int fd() const = 0;  // -1: no further events
  // Called when fd() is readable. May throw to end the wait.
  virtual void hear() = 0;
};

// The deadline of a wait, and further events to watch.
struct Wait {
  Wait(const Deadline& until, Aside* besides = nullptr)
      : deadline(until), aside(besides) {}  // NOLINT
  Deadline deadline;
  Aside* aside;
};

// Starts a connection without blocking. begin_connect() returns 0 or EINPROGRESS with `socket` to
// be polled for POLLOUT and passed to end_connect(), or the errno of the failure. end_connect()
// returns 0 or the errno. The connection is bound to `own`, or if that is null to the address of
// the route.
int begin_connect(const SocketAddress& address, Fd& socket, const SocketAddress* own = nullptr);
int end_connect(int socket);

// Tries to connect once. Returns 0 with `socket` connected, or the errno; ETIMEDOUT on timeout.
int try_connect(const SocketAddress& address, const Wait& wait, Fd& socket);

enum class Transfer { complete, closed, timed_out };
// `closed` covers EOF and every socket error; `error` (if given) receives the errno, 0 for EOF.
Transfer read_exactly(int socket, std::span<std::byte> into, const Wait& wait,
                      int* error = nullptr);
Transfer write_exactly(int socket, std::span<const std::byte> bytes, const Wait& wait,
                       int* error = nullptr);
Transfer write_exactly(ByteStream& stream, std::span<const std::byte> bytes, const Wait& wait,
                       int* error = nullptr);
// Reads one frame's body. An oversized frame counts as closed. The stream may buffer further bytes
// of its socket, which poll() does not see.
Transfer read_frame(ByteStream& stream, std::string& body, size_t limit, const Wait& wait,
                    int* error = nullptr);

// Returns true when one of `events` occurs, false on timeout. fd -1 never becomes ready.
bool wait_for(int fd, short events, const Wait& wait);

void set_no_delay(int socket);
// Allows a later listener to reuse the connection's port.
void set_reuse(int socket);
// Breaks an idle connection that the other side has lost after about the network timeout.
// begin_connect() sets this on every socket.
void set_keepalive(int socket);
// Reverts set_keepalive(): a data connection that is idle while its link is busy with others may
// well miss a few probes.
void clear_keepalive(int socket);
// Limits the time without acknowledgement, of data or of probes, to the network timeout. Not for
// data connections: it would also break those whose reader is merely slow.
void set_user_timeout(int socket);

// Describes the end of a connection: "Connection reset by peer"; "closed by the other side" for 0;
// a modified byte stream for EBADMSG (ByteStream).
std::string explain_close(int error);

}  // namespace tutti::bootstrap
