#include "transport/shm/extents.h"

#include <algorithm>
#include <iterator>

namespace tutti::shm {

std::optional<Extent> FreeExtents::take(uint64_t bytes) {
  const auto found =
      std::ranges::find_if(free_, [&](const auto& range) { return range.second >= bytes; });
  if (found == free_.end()) return std::nullopt;
  const auto [offset, length] = *found;
  free_.erase(found);
  if (length > bytes) free_[offset + bytes] = length - bytes;
  return Extent{offset, bytes};
}

void FreeExtents::give_back(const Extent& extent) {
  auto here = free_.emplace(extent.offset, extent.bytes).first;
  const auto next = std::next(here);
  if (next != free_.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here == free_.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second != here->first) return;
  before->second += here->second;
  free_.erase(here);
}

}  // namespace tutti::shm
