#include "tools/chaos/silent_pair.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "tools/chaos/in_namespace.h"

namespace tutti::tool::chaos {
namespace {

// A locally administered hardware address that no interface uses.
constexpr std::array<unsigned char, 6> kNobody = {0x02, 0, 0, 0, 0, 0x01};

Error unreachable(const std::string& host, int error) {
  return system_error(
      cat("cannot change the neighbour table of host ", host), error,
      {.cause = "the network namespace does not exist, or root privileges are missing",
       .remedy = "use names from `ip netns list`, and run as root"});
}

// Returns the IPv4 addresses of the namespace's interfaces, without loopback.
std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> addresses;
  const int error = in_namespace(host, [&] {
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return errno;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
      if ((one->ifa_flags & IFF_LOOPBACK) != 0) continue;
      std::array<char, INET_ADDRSTRLEN> text{};
      const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
      ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
      addresses.emplace_back(text.data());
    }
    return 0;
  });
  if (error != 0) throw unreachable(host, error);
  if (!addresses.empty()) return addresses;
  throw Error(ErrorCode::invalid_argument, cat("host ", host, " has no IPv4 address"),
              {.remedy = "assign addresses to its interfaces before the trials"});
}

// In namespace `from`, adds (`silent`) or deletes permanent neighbour entries that map the
// addresses `to` to an unused MAC address, so that packets to them are lost. Returns 0 or an errno.
int set_neighbours(const std::string& from, const std::vector<std::string>& to, bool silent) {
  return in_namespace(from, [&] {
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return errno;
    int error = 0;
    for (const std::string& text : to) {
      arpreq request{};
      auto* address = reinterpret_cast<sockaddr_in*>(&request.arp_pa);
      address->sin_family = AF_INET;
      ::inet_pton(AF_INET, text.c_str(), &address->sin_addr);
      request.arp_ha.sa_family = ARPHRD_ETHER;
      std::copy(kNobody.begin(), kNobody.end(), request.arp_ha.sa_data);
      request.arp_flags = ATF_PERM | ATF_COM;
      if (::ioctl(socket.get(), silent ? SIOCSARP : SIOCDARP, &request) != 0) error = errno;
    }
    return error;
  });
}

}  // namespace

void SilentPair::require(const std::string& host) { addresses_of(host); }

SilentPair::SilentPair(const std::string& one, const std::string& other)
    : directions_{{one, addresses_of(other)}, {other, addresses_of(one)}} {
  for (const Direction& direction : directions_) {
    const int error = set_neighbours(direction.from, direction.to, true);
    if (error == 0) continue;
    resume_traffic();
    throw unreachable(direction.from, error);
  }
}

SilentPair::~SilentPair() { resume_traffic(); }

void SilentPair::resume_traffic() {
  for (const Direction& direction : directions_) {
    set_neighbours(direction.from, direction.to, false);
  }
}

}  // namespace tutti::tool::chaos
