#include "bindings/nccl_plugins/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti::nccl {

namespace {

// Speed of an unknown interface, the default of NCCL's own sockets.
constexpr int kUsualMbits = 10'000;

// Returns the speed in megabits per second. The system reports -1 for a link that is down, and for
// some virtual interfaces.
int speed_of(const std::string& name) {
  int mbits = 0;
  std::ifstream file(cat("/sys/class/net/", name, "/speed"));
  return file >> mbits && mbits > 0 ? mbits : kUsualMbits;
}

std::string pci_path_of(const std::string& name) {
  std::error_code none;
  const auto path = std::filesystem::canonical(cat("/sys/class/net/", name, "/device"), none);
  return none ? std::string() : path.string();
}

bool is_of_containers(std::string_view name) {
  return name.starts_with("docker") || name.starts_with("veth") || name.starts_with("virbr");
}

std::vector<std::string> named_by_user() {
  std::vector<std::string> names;
  const std::string list = settings().get_string("TUTTI_INTERFACE");
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::vector<std::string> found() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw system_error("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::set<std::string> far;
  std::set<std::string> near;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const bool stays = (entry->ifa_flags & IFF_LOOPBACK) != 0 || is_of_containers(entry->ifa_name);
    (stays ? near : far).insert(entry->ifa_name);
  }
  const std::set<std::string>& names = far.empty() ? near : far;
  return {names.begin(), names.end()};
}

}  // namespace

std::vector<Interface> find_interfaces() {
  std::vector<std::string> names = named_by_user();
  if (names.empty()) names = found();
  std::vector<Interface> interfaces;
  for (const std::string& name : names) {
    interfaces.push_back({.name = name, .pci_path = pci_path_of(name), .mbits = speed_of(name)});
  }
  return interfaces;
}

}  // namespace tutti::nccl
