#include "transport/bootstrap/membership/separation.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti::bootstrap {
namespace {

struct Host {
  std::vector<size_t> members;           // positions, ascending
  std::set<std::string_view> unreached;  // host names

  // Returns a sort key: the host with the greatest key leaves first.
  auto urgency() const {
    return std::tuple(unreached.size(), -std::ssize(members), members.front());
  }
};

}  // namespace

std::vector<bool> separate(std::vector<bool> living, std::span<const std::string_view> hosts,
                           std::span<const std::pair<size_t, size_t>> broken) {
  std::map<std::string_view, Host> left;
  for (size_t place = 0; place < living.size(); ++place) {
    if (living[place]) left[hosts[place]].members.push_back(place);
  }
  for (const auto& [a, b] : broken) {
    if (!living[a] || !living[b] || hosts[a] == hosts[b]) continue;
    left[hosts[a]].unreached.insert(hosts[b]);
    left[hosts[b]].unreached.insert(hosts[a]);
  }
  while (!left.empty()) {
    const auto worst = std::ranges::max_element(
        left, {}, [](const auto& entry) { return entry.second.urgency(); });
    if (worst->second.unreached.empty()) break;
    for (const size_t place : worst->second.members) living[place] = false;
    for (const std::string_view other : worst->second.unreached) {
      left[other].unreached.erase(worst->first);
    }
    left.erase(worst);
  }
  for (const auto& [a, b] : broken) {
    if (living[a] && living[b]) living[std::max(a, b)] = false;
  }
  return living;
}

}  // namespace tutti::bootstrap
