#include "topology/fast_links.h"

#include <algorithm>

namespace tutti {

void FastLinks::add(int gpu, int other, LinkClass kind, int count, double GBps_of_each) {
  Declared& known = declared_[{gpu, other}];
  known = {kind, known.count + count, known.GBps + count * GBps_of_each};
}

int FastLinks::links_of(int gpu) const {
  int count = 0;
  for (const auto& [ends, declared] : declared_) {
    if (ends.first == gpu) count += declared.count;
  }
  return count;
}

bool FastLinks::has(int gpu) const {
  return std::ranges::any_of(declared_, [&](const auto& declared) {
    return declared.first.first == gpu || declared.first.second == gpu;
  });
}

void FastLinks::take_for_switched(std::span<const Switched> gpus) {
  std::erase_if(declared_, [&](const auto& declared) {
    return std::ranges::any_of(gpus, [&](const Switched& one) {
      return declared.first.first == one.gpu || declared.first.second == one.gpu;
    });
  });
  for (const Switched& one : gpus) {
    add(one.gpu, one.nvlink_switch, LinkClass::nvlink, one.ports, one.GBps_of_each);
  }
}

void FastLinks::connect(
    const std::function<void(int a, int b, LinkClass kind, double GBps)>& link) const {
  for (const auto& [ends, declared] : declared_) {
    const auto back = declared_.find({ends.second, ends.first});
    if (back == declared_.end()) {
      link(ends.first, ends.second, declared.kind, declared.GBps);
    } else if (ends.first < ends.second) {
      link(ends.first, ends.second, declared.kind, std::max(declared.GBps, back->second.GBps));
    }
  }
}

}  // namespace tutti
