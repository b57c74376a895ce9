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
  std::string host() const;  // numeric: "10.0.0.1" or "fe80::1%eth0"
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_loopback() const;
  bool is_wildcard() const;
  std::string text() const;  // formats as "10.0.0.1:29500" or "[::1]:29500"
};

// Formats an address: "10.0.0.1:29500", "[::1]:29500".
std::string endpoint_text(const std::string& host, uint16_t port);

// Returns all addresses of a name or a numeric address. Throws Error(bootstrap) if there is none.
std::vector<SocketAddress> resolve(const std::string& host, uint16_t port);
// Returns true if all `addresses` of `name` are loopback although `name` is not a loopback name.
// This happens if `name` is this host's own name (`own_name`) and /etc/hosts maps it to loopback
// (Debian: 127.0.1.1).
bool is_hidden_by_loopback(const std::string& name, const std::string& own_name,
                           const std::vector<SocketAddress>& addresses);
// Resolves the host of rank 0. For this host's own name it returns an address that other hosts can
// reach, even if /etc/hosts maps the name to loopback: the address of `interface` or, if that is
// empty, reachable_address(). All ranks on rank 0's host must call this function, so that all get
// the same result.
std::vector<SocketAddress> resolve_master(const std::string& host, uint16_t port,
                                          const std::string& interface);
// Returns the first address of a network interface (IPv4 before IPv6). If there is no such
// interface, the text is resolved as an address.
std::vector<SocketAddress> resolve_interface(const std::string& interface_or_address,
                                             uint16_t port);
// Returns an address of this host that other hosts can probably reach: the address of the default
// route. If there is no default route, returns an address of the first interface that is up and
// not loopback. If there is none either, returns the loopback address.
SocketAddress reachable_address();
// Builds an address in the abstract namespace of unix sockets.
SocketAddress unix_address(std::string_view abstract_name);

SocketAddress local_address(int socket);
SocketAddress peer_address(int socket);

Fd listen_on(const SocketAddress& address);

// A second source of events, such as the launcher's pipe, to watch while waiting for a socket.
class EventSource {
 public:
  virtual ~EventSource() = default;
  virtual int fd() const = 0;  // -1: no further events
  // Handles the event; called when fd() is readable. It may throw to end the wait.
  virtual void handle_event() = 0;
};

// The deadline of a wait, and further events to watch.
struct Wait {
  Wait(const Deadline& until, EventSource* events = nullptr)
      : deadline(until), event_source(events) {}  // NOLINT
  Deadline deadline;
  EventSource* event_source;
};

// Connect without blocking. begin_connect() returns 0 or EINPROGRESS with `socket`, which must be
// polled for POLLOUT and passed to end_connect(); or it returns the errno of the failure.
// end_connect() returns 0 or the errno. The connection is bound to `own`; if that is null, the
// route determines the local address.
int begin_connect(const SocketAddress& address, Fd& socket, const SocketAddress* own = nullptr);
int end_connect(int socket);

// Tries to connect once. Returns 0 with `socket` connected, or the errno; ETIMEDOUT on timeout.
int try_connect(const SocketAddress& address, const Wait& wait, Fd& socket);

enum class Transfer { complete, closed, timed_out };
// Reads until `into` is full. Returns `closed` for EOF and every socket error; `error` (if given)
// receives the errno, 0 for EOF.
Transfer read_exactly(int socket, std::span<std::byte> into, const Wait& wait,
                      int* error = nullptr);
Transfer write_exactly(int socket, std::span<const std::byte> bytes, const Wait& wait,
                       int* error = nullptr);
Transfer write_exactly(ByteStream& stream, std::span<const std::byte> bytes, const Wait& wait,
                       int* error = nullptr);
// Reads one frame's body. An oversized frame counts as closed. The stream may buffer bytes that
// follow the frame; poll() on its socket does not report those bytes.
Transfer read_frame(ByteStream& stream, std::string& body, size_t limit, const Wait& wait,
                    int* error = nullptr);

// Waits until one of `events` occurs on `fd`; returns false on timeout. fd -1 never becomes ready.
bool wait_for(int fd, short events, const Wait& wait);

void set_no_delay(int socket);
// Allows a later listener to reuse the connection's port.
void set_reuse(int socket);
// Makes an idle connection break after about the network timeout if the other side has lost it.
// begin_connect() sets this on every TCP socket.
void set_keepalive(int socket);
// Reverts set_keepalive(). Used for data connections, because an idle one may miss a few probes
// while other connections keep its network busy.
void clear_keepalive(int socket);
// Limits the time that sent data or probes may stay unacknowledged to the network timeout. It must
// not be used for data connections, because a connection whose reader is merely slow would break
// too.
void set_user_timeout(int socket);

// Describes why a connection ended, given the errno: "Connection reset by peer"; for 0 "closed by
// the other side"; for EBADMSG (ByteStream) a modified byte stream.
std::string explain_close(int error);

}  // namespace tutti::bootstrap
