#include "transport/ofi/cards.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/processors.h"
#include "base/text.h"

namespace tutti::ofi {

namespace {

// Providers, best first. `net` was renamed to `tcp` in 1.18. Excluded: shm (one host only),
// sockets, udp;ofi_rxd and similar providers, which exist for compatibility.
constexpr std::array<std::string_view, 8> kProviders = {
    "efa", "cxi", "opx", "psm3", "verbs;ofi_rxm", "net", "tcp", "tcp;ofi_rxm"};

// Returns the IP address of the interface, or "".
std::string ip_of(const fi_info& info) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto* const address = static_cast<const sockaddr*>(info.src_addr);
  if (address == nullptr) return "";
  if (info.addr_format == FI_SOCKADDR_IN ||
      (info.addr_format == FI_SOCKADDR && address->sa_family == AF_INET)) {
    const auto& of = *static_cast<const sockaddr_in*>(info.src_addr);
    ::inet_ntop(AF_INET, &of.sin_addr, text.data(), text.size());
  } else if (info.addr_format == FI_SOCKADDR_IN6 ||
             (info.addr_format == FI_SOCKADDR && address->sa_family == AF_INET6)) {
    const auto& of = *static_cast<const sockaddr_in6*>(info.src_addr);
    ::inet_ntop(AF_INET6, &of.sin6_addr, text.data(), text.size());
  }
  return text.data();
}

bool is_loopback(const std::string& ip) { return ip.starts_with("127.") || ip == "::1"; }

// Returns the preference of a provider: smaller is better, negative is excluded. The functions
// below use the same scale.
int rank_of_provider(const fi_info& info) {
  const std::string_view name = info.fabric_attr->prov_name;
  for (size_t i = 0; i < kProviders.size(); ++i) {
    if (name == kProviders[i]) return static_cast<int>(i);
  }
  const char* const named = std::getenv("FI_PROVIDER");  // a leading ^ starts a list of exclusions
  return named != nullptr && *named != '^' ? static_cast<int>(kProviders.size()) : -1;
}

int rank_of_interface(const fi_info& info, const std::string& near) {
  const std::string ip = ip_of(info);
  if (ip.empty()) return 1;
  if (ip == near) return 0;
  if (is_loopback(ip)) return near.empty() ? 4 : -1;  // loopback cannot reach other hosts
  const bool link_local = ip.starts_with("fe80:");
  return link_local ? 3 : info.addr_format == FI_SOCKADDR_IN6 ? 2 : 1;
}

// Returns 0 for a card next to this process, 1 if that is unknown, 2 for one elsewhere in the host.
int distance(const fi_info& info, const std::string& sys) {
  const fi_bus_attr* const bus = info.nic != nullptr ? info.nic->bus_attr : nullptr;
  if (bus == nullptr || bus->bus_type != FI_BUS_PCI) return 1;
  const fi_pci_attr& pci = bus->attr.pci;
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%04x:%02x:%02x.%x", pci.domain_id, pci.bus_id,
                pci.device_id, pci.function_id);
  std::ifstream file(cat(sys, "/bus/pci/devices/", name.data(), "/local_cpulist"));
  std::string processors;
  if (!std::getline(file, processors) || processors.empty()) return 1;
  return may_run_on(processors) ? 0 : 2;
}

}  // namespace

const fi_info* choose(const fi_info* all, const Near& near, const std::string& provider,
                      const std::string& sys) {
  std::tuple<int, int, int> best_rank;
  std::vector<const fi_info*> best;  // equally good ones, on different cards
  for (const fi_info* info = all; info != nullptr; info = info->next) {
    if (!provider.empty() && provider != info->fabric_attr->prov_name) continue;
    const std::tuple rank(rank_of_provider(*info), rank_of_interface(*info, near.address),
                          distance(*info, sys));
    if (std::get<0>(rank) < 0 || std::get<1>(rank) < 0) continue;
    if (!best.empty() && best_rank < rank) continue;
    if (best.empty() || rank < best_rank) best.clear();
    best_rank = rank;
    const std::string_view card = info->domain_attr->name;
    const auto same = [&](const fi_info* other) { return card == other->domain_attr->name; };
    if (std::ranges::none_of(best, same)) best.push_back(info);
  }
  if (best.empty()) return nullptr;
  // Interfaces with IP addresses may be in separate networks, so all ranks use the first one.
  const bool in_turn = ip_of(*best.front()).empty();
  return best[in_turn ? static_cast<size_t>(near.local_rank) % best.size() : 0];
}

}  // namespace tutti::ofi
