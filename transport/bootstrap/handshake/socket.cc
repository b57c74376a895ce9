#include "transport/bootstrap/handshake/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/host_name.h"
#include "base/network_timeout.h"
#include "base/text.h"

namespace tutti::bootstrap {

namespace {

// Step by which the descriptor limit is raised.
constexpr size_t kSpareDescriptors = 64;

const sockaddr_in& v4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& v6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

SocketAddress from_raw(const sockaddr* raw, socklen_t length) {
  SocketAddress address;
  std::memcpy(&address.storage, raw, length);
  address.length = length;
  return address;
}

socklen_t length_of(int family) {
  return family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

Interfaces list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw system_error("getifaddrs", errno);
  return {list, &::freeifaddrs};
}

// Returns the first usable address for which `wanted` is true, IPv4 before IPv6.
template <typename Predicate>
std::optional<SocketAddress> find_interface(Predicate wanted) {
  const Interfaces interfaces = list_interfaces();
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) != 0 && wanted(*entry)) {
        return from_raw(entry->ifa_addr, length_of(family));
      }
    }
  }
  return std::nullopt;
}

// Builds the error for an interface or name without an address.
Error unusable_interface(const std::string& name) {
  const std::string what = cat("TUTTI_INTERFACE names '", name, "', which ");
  const Interfaces interfaces = list_interfaces();
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    if (name != entry->ifa_name) continue;
    const bool up = (entry->ifa_flags & IFF_UP) != 0;
    return {ErrorCode::bootstrap,
            cat(what, up ? "has no address" : "is down", " on host ", host_name()),
            {.remedy = cat(up ? "give it one" : "set it up",
                           ", or name another interface (run `ip ", "address` to list them)")}};
  }
  return {ErrorCode::bootstrap,
          cat(what, "is neither a network interface nor an address of host ", host_name()),
          {.remedy = "run `ip address` to list this host's interfaces"}};
}

// Returns the source address of the default route. Nothing is sent.
std::optional<SocketAddress> default_route_address() {
  const Fd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in far{};
  far.sin_family = AF_INET;
  far.sin_port = htons(9);
  far.sin_addr.s_addr = htonl(0xC0000201);  // 192.0.2.1, reserved for documentation
  if (!probe || ::connect(probe.get(), reinterpret_cast<sockaddr*>(&far), sizeof(far)) != 0) {
    return std::nullopt;
  }
  SocketAddress address = local_address(probe.get());
  address.set_port(0);
  return address;
}

// Returns true if TCP has connected the socket to itself. If nobody listens, the kernel may choose
// the requested port as this end's own port.
bool connected_to_itself(int socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof(here);
  socklen_t there_length = sizeof(there);
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_length) == 0 &&
         here.ss_family != AF_UNIX &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_length) == 0 &&
         here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof(value));
}

// Reads until `into` is full. `receive` is recv() without the socket argument.
template <typename Receive>
Transfer read_all(int socket, Receive receive, std::span<std::byte> into, const Wait& wait,
                  int* error) {
  while (!into.empty()) {
    const ssize_t got = receive(into);
    if (got > 0) {
      into = into.subspan(static_cast<size_t>(got));
    } else if (got < 0 && errno == EAGAIN) {
      if (!wait_for(socket, POLLIN, wait)) return Transfer::timed_out;
    } else if (got == 0 || errno != EINTR) {
      if (error != nullptr) *error = got == 0 ? 0 : errno;
      return Transfer::closed;
    }
  }
  return Transfer::complete;
}

template <typename Send>
Transfer write_all(int socket, Send send, std::span<const std::byte> bytes, const Wait& wait,
                   int* error) {
  while (!bytes.empty()) {
    const ssize_t sent = send(bytes);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket, POLLOUT, wait)) return Transfer::timed_out;
    } else if (errno != EINTR) {
      if (error != nullptr) *error = errno;
      return Transfer::closed;
    }
  }
  return Transfer::complete;
}

// Returns an empty Fd, and sets errno, on failure.
Fd open_socket(int family) {
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Fd socket(::socket(family, kType, 0));
  if (socket || errno != EMFILE) return socket;
  reserve_descriptors(kSpareDescriptors);
  return Fd(::socket(family, kType, 0));
}

}  // namespace

std::string SocketAddress::host() const {
  char text[NI_MAXHOST];
  if (::getnameinfo(get(), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(v4(*this).sin_port);
  return family() == AF_INET6 ? ntohs(v6(*this).sin6_port) : 0;
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return ntohl(v4(*this).sin_addr.s_addr) >> 24 == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6(*this).sin6_addr);
}

bool SocketAddress::is_wildcard() const {
  if (family() == AF_INET) return v4(*this).sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6(*this).sin6_addr);
}

std::string SocketAddress::text() const { return endpoint_text(host(), port()); }

std::string endpoint_text(const std::string& host, uint16_t port) {
  return host.find(':') == std::string::npos ? cat(host, ":", port) : cat("[", host, "]:", port);
}

std::vector<SocketAddress> resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), cat(port).c_str(), &hints, &list);
  if (status != 0) {
    throw Error(ErrorCode::bootstrap, cat("cannot resolve the address '", host, "'"),
                {.cause = status == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(status),
                 .remedy = "set MASTER_ADDR to a name or address that this host knows"});
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    addresses.push_back(from_raw(entry->ai_addr, entry->ai_addrlen));
  }
  ::freeaddrinfo(list);
  return addresses;
}

bool is_hidden_by_loopback(const std::string& name, const std::string& own_name,
                           const std::vector<SocketAddress>& addresses) {
  const auto first_label = [](const std::string& text) { return text.substr(0, text.find('.')); };
  // "node7" and "node7.cluster" are the same host; "node7.a" and "node7.b" may differ.
  const bool own =
      name == own_name || name == first_label(own_name) || first_label(name) == own_name;
  return own && first_label(name) != "localhost" &&
         std::ranges::all_of(addresses, &SocketAddress::is_loopback);
}

std::vector<SocketAddress> resolve_master(const std::string& host, uint16_t port,
                                          const std::string& interface) {
  std::vector<SocketAddress> addresses = resolve(host, port);
  if (!is_hidden_by_loopback(host, host_name(), addresses)) return addresses;
  if (!interface.empty()) return resolve_interface(interface, port);
  addresses = {reachable_address()};
  addresses[0].set_port(port);
  return addresses;
}

std::vector<SocketAddress> resolve_interface(const std::string& interface_or_address,
                                             uint16_t port) {
  const auto found =
      find_interface([&](const ifaddrs& entry) { return interface_or_address == entry.ifa_name; });
  if (!found) {
    try {
      return resolve(interface_or_address, port);
    } catch (const Error&) {
      throw unusable_interface(interface_or_address);
    }
  }
  std::vector<SocketAddress> addresses{*found};
  addresses[0].set_port(port);
  return addresses;
}

SocketAddress reachable_address() {
  if (auto address = default_route_address()) return *address;
  const auto usable = [](const ifaddrs& entry) { return (entry.ifa_flags & IFF_LOOPBACK) == 0; };
  if (auto address = find_interface(usable)) return *address;
  return resolve("127.0.0.1", 0)[0];
}

SocketAddress unix_address(std::string_view abstract_name) {
  sockaddr_un raw{};
  raw.sun_family = AF_UNIX;
  const size_t length = std::min(abstract_name.size(), sizeof(raw.sun_path) - 1);
  // The leading 0 makes the address abstract.
  std::memcpy(raw.sun_path + 1, abstract_name.data(), length);
  return from_raw(reinterpret_cast<sockaddr*>(&raw),
                  static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length));
}

SocketAddress local_address(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throw system_error("getsockname", errno);
  }
  return address;
}

SocketAddress peer_address(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throw system_error("getpeername", errno);
  }
  return address;
}

Fd listen_on(const SocketAddress& address) {
  Fd socket = open_socket(address.family());
  if (!socket && is_descriptor_shortage(errno)) throw descriptor_shortage("socket", errno);
  if (!socket) throw system_error("socket", errno);
  if (address.family() != AF_UNIX) set_reuse(socket.get());
  if (address.family() == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(socket.get(), address.get(), address.length) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    ErrorDetail detail;
    if (error == EADDRINUSE) {
      detail = {.cause = "another program, or another job, listens on this port",
                .remedy = "choose another MASTER_PORT (on all ranks)"};
    } else if (error == EADDRNOTAVAIL) {
      detail = {.cause = "the address is not one of this host's",
                .remedy =
                    "set MASTER_ADDR to an address of rank 0's host, or TUTTI_INTERFACE on "
                    "rank 0 to the interface to listen on"};
    }
    throw system_error(cat("listen on ", address.text()), error, detail);
  }
  return socket;
}

int begin_connect(const SocketAddress& address, Fd& socket, const SocketAddress* own) {
  Fd attempt = open_socket(address.family());
  if (!attempt) return errno;
  if (address.family() != AF_UNIX) {
    set_no_delay(attempt.get());
    // Keepalive is needed because the acceptor speaks first: a listener that is closed during the
    // connect may leave a half-open connection, on which this side would wait forever.
    set_keepalive(attempt.get());
  }
  if (own != nullptr) {
    // The port is chosen when the pair of addresses is known, which allows more connections.
    set_option(attempt.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (::bind(attempt.get(), own->get(), own->length) != 0) return errno;
  }
  // A unix socket with a full backlog returns EAGAIN; the caller retries.
  const int error = ::connect(attempt.get(), address.get(), address.length) == 0 ? 0 : errno;
  if (error == 0 || error == EINPROGRESS) socket = std::move(attempt);
  return error;
}

int end_connect(int socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  if (error != 0) return error;
  return connected_to_itself(socket) ? ECONNREFUSED : 0;
}

int try_connect(const SocketAddress& address, const Wait& wait, Fd& socket) {
  Fd attempt;
  if (const int error = begin_connect(address, attempt); error != 0) {
    if (error != EINPROGRESS) return error;
    if (!wait_for(attempt.get(), POLLOUT, wait)) return ETIMEDOUT;
  }
  if (const int error = end_connect(attempt.get()); error != 0) return error;
  socket = std::move(attempt);
  return 0;
}

bool wait_for(int fd, short events, const Wait& wait) {
  for (;;) {
    const int event_source = wait.event_source == nullptr ? -1 : wait.event_source->fd();
    std::array<pollfd, 2> entries{{{fd, events, 0}, {event_source, POLLIN, 0}}};
    const auto timeout = static_cast<int>(wait.deadline.remaining().count());
    const int ready = ::poll(entries.data(), entries.size(), timeout);
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
    if (ready > 0 && entries[1].revents != 0) wait.event_source->handle_event();
    if (ready > 0 && entries[0].revents != 0) return true;
    if (wait.deadline.passed()) return false;
  }
}

Transfer read_exactly(int socket, std::span<std::byte> into, const Wait& wait, int* error) {
  const auto receive = [socket](std::span<std::byte> rest) {
    return ::recv(socket, rest.data(), rest.size(), MSG_DONTWAIT);
  };
  return read_all(socket, receive, into, wait, error);
}

Transfer write_exactly(int socket, std::span<const std::byte> bytes, const Wait& wait, int* error) {
  const auto send = [socket](std::span<const std::byte> rest) {
    return ::send(socket, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  };
  return write_all(socket, send, bytes, wait, error);
}

Transfer write_exactly(ByteStream& stream, std::span<const std::byte> bytes, const Wait& wait,
                       int* error) {
  const auto send = [&](std::span<const std::byte> rest) { return stream.send(rest); };
  return write_all(stream.get(), send, bytes, wait, error);
}

Transfer read_frame(ByteStream& stream, std::string& body, size_t limit, const Wait& wait,
                    int* error) {
  const auto receive = [&](std::span<std::byte> rest) {
    return stream.receive(rest.data(), rest.size());
  };
  const auto read = [&](std::span<std::byte> into) {
    return read_all(stream.get(), receive, into, wait, error);
  };
  uint32_t length = 0;
  const Transfer header = read(std::as_writable_bytes(std::span(&length, 1)));
  if (header != Transfer::complete) return header;
  if (length == 0 || length > limit) {
    if (error != nullptr) *error = EPROTO;
    return Transfer::closed;
  }
  body.resize(length);
  return read(std::as_writable_bytes(std::span(body)));
}

void set_no_delay(int socket) { set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1); }

void set_reuse(int socket) { set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1); }

// Enables keepalive. A probe is sent each second, or less often if the network timeout would
// require more probes than the system allows.
void set_keepalive(int socket) {
  constexpr int64_t kMostProbes = 127;
  const int64_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(network_timeout()).count() - 1;
  const int64_t interval = (seconds + kMostProbes - 1) / kMostProbes;
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(interval));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(seconds / interval));
}

void clear_keepalive(int socket) { set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 0); }

void set_user_timeout(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(network_timeout().count()));
}

std::string explain_close(int error) {
  if (error == EBADMSG) return "the received bytes were corrupted in transit";
  return error == 0 ? "closed by the other side" : std::strerror(error);
}

}  // namespace tutti::bootstrap
