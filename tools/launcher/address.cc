#include "tools/launcher/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::tool {

namespace {

struct LocalAddress {
  std::string interface;
  std::string address;
  bool global = false;  // true if the address is neither loopback nor link-local
};

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

bool is_global(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    const uint32_t bits = ntohl(v4->sin_addr.s_addr);
    return (bits >> 24) != 127 && (bits >> 16) != 0xa9fe;  // not in 127.0.0.0/8 or 169.254.0.0/16
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return !IN6_IS_ADDR_LOOPBACK(&v6) && !IN6_IS_ADDR_LINKLOCAL(&v6);
}

// Returns the addresses of interfaces that are up, IPv4 before IPv6.
std::vector<LocalAddress> local_addresses() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) throw system_error("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::vector<LocalAddress> found;
  for (int family : {AF_INET, AF_INET6}) {
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) == 0) continue;
      found.push_back(
          {entry->ifa_name, numeric(entry->ifa_addr, length), is_global(entry->ifa_addr)});
    }
  }
  return found;
}

std::vector<std::string> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &raw) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
  std::vector<std::string> found;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    found.push_back(numeric(entry->ai_addr, entry->ai_addrlen));
  }
  return found;
}

}  // namespace

Listener listen_on(const std::string& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(address.c_str(), "0", &hints, &raw) != 0) {
    throw Error(ErrorCode::invalid_argument, cat("'", address, "' is not a numeric address"),
                {.remedy = "use an IPv4 or IPv6 address"});
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
  Fd socket(::socket(raw->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (!socket || ::bind(socket.get(), raw->ai_addr, raw->ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    throw system_error(cat("listen on ", address), errno,
                       {.remedy = "set TUTTI_INTERFACE to a working interface"});
  }
  // The port has the same offset in both address families.
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return {std::move(socket), address, port};
}

std::string reachable_address(const std::string& host, const std::string& interface) {
  const std::vector<LocalAddress> local = local_addresses();
  if (!interface.empty()) {
    const auto named = std::ranges::find_if(local, [&](const LocalAddress& one) {
      return one.interface == interface || one.address == interface;
    });
    if (named != local.end()) return named->address;
    throw Error(ErrorCode::invalid_argument,
                cat("no interface or address '", interface, "' is up on host ", host),
                {.remedy = "set TUTTI_INTERFACE to a name or address from `ip address`"});
  }
  for (const std::string& address : resolve(host)) {
    const auto own = std::ranges::find(local, address, &LocalAddress::address);
    if (own != local.end() && own->global) return address;
  }
  // Address of the default route. Other addresses, such as that of a container bridge, may be
  // unreachable from other hosts.
  const std::string outward = bootstrap::reachable_address().host();
  const auto on_route = std::ranges::find(local, outward, &LocalAddress::address);
  if (on_route != local.end() && on_route->global) return outward;
  const auto first = std::ranges::find_if(local, &LocalAddress::global);
  if (first != local.end()) return first->address;
  throw Error(ErrorCode::bootstrap,
              cat("host ", host, " has no address that other hosts can reach"),
              {.cause = "only the loopback interface is up",
               .remedy = "bring a network interface up, or name one in TUTTI_INTERFACE"});
}

}  // namespace tutti::tool
