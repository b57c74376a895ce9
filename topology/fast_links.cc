#include "topology/fast_links.h"

#include <algorithm>

namespace tutti {

void FastLinks::add(int gpu, int other, LinkClass kind, int count, double GBps_of_each) {
  Told& known = told_[{gpu, other}];
  known = {kind, known.count + count, known.GBps + count * GBps_of_each};
}

int FastLinks::links_of(int gpu) const {
  int count = 0;
  for (const auto& [ends, told] : told_) {
    if (ends.first == gpu) count += told.count;
  }
  return count;
}

bool FastLinks::has(int gpu) const {
  return std::ranges::any_of(
      told_, [&](const auto& told) { return told.first.first == gpu || told.first.second == gpu; });
}

void FastLinks::take_for_switched(std::span<const Switched> gpus) {
  std::erase_if(told_, [&](const auto& told) {
    return std::ranges::any_of(gpus, [&](const Switched& one) {
      return told.first.first == one.gpu || told.first.second == one.gpu;
    });
  });
  for (const Switched& one : gpus) {
    add(one.gpu, one.nvlink_switch, LinkClass::nvlink, one.ports, one.GBps_of_each);
  }
}

void FastLinks::connect(
    const std::function<void(int a, int b, LinkClass kind, double GBps)>& link) const {
  for (const auto& [ends, told] : told_) {
    const auto back = told_.find({ends.second, ends.first});
    if (back == told_.end()) {
      link(ends.first, ends.second, told.kind, told.GBps);
    } else if (ends.first < ends.second) {
      link(ends.first, ends.second, told.kind, std::max(told.GBps, back->second.GBps));
    }
  }
}

}  // namespace tutti
