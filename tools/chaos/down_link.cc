#include "tools/chaos/down_link.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "tools/chaos/in_namespace.h"

namespace tutti::tool::chaos {

namespace {

// Sets an interface up or down in the current namespace. Returns 0 or an errno.
int set_up_here(std::string_view interface, bool up) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  ifreq request{};
  if (interface.size() >= sizeof(request.ifr_name)) return ENODEV;
  std::ranges::copy(interface, request.ifr_name);
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return errno;
  const int flags = up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;
  request.ifr_flags = static_cast<short>(flags);
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0 ? 0 : errno;
}

int set_up(const std::string& name, bool up) {
  const size_t slash = name.find('/');
  const std::string space = slash == std::string::npos ? "" : name.substr(0, slash);
  const std::string interface = slash == std::string::npos ? name : name.substr(slash + 1);
  return in_namespace(space, [&] { return set_up_here(interface, up); });
}

}  // namespace

DownLink::DownLink(const std::string& name) : name_(name) {
  if (const int error = set_up(name, false); error != 0) {
    throw system_error(cat("cannot take the link ", name, " down"), error,
                       {.cause = "the interface does not exist, or root privileges are missing",
                        .remedy = "use a name from `ip link`, with the prefix NAMESPACE/ for an "
                                  "interface in a network namespace, and run as root"});
  }
}

DownLink::~DownLink() { set_up(name_, true); }

}  // namespace tutti::tool::chaos
