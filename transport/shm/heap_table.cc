#include "transport/shm/heap_table.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace tutti::shm {

namespace {

// Minimum room per rank for regions in the heap; with less room, each region has a file of its own.
// A few hundred communicators must fit, and leave room for allocations.
constexpr uint64_t kLeastForRegions = uint64_t{4} << 30;

}  // namespace

void HeapTable::join(const Fd& file, uint64_t start, std::span<const int> ranks, int own) {
  auto copy = std::make_shared<const Fd>(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
  if (!*copy) throw system_error("duplicate the descriptor of the shared memory", errno);
  const auto part_of = [&](size_t index) {
    return part_of_heaps(*copy, start, static_cast<int>(ranks.size()), static_cast<int>(index));
  };
  const Extent part =
      part_of(static_cast<size_t>(std::ranges::lower_bound(ranks, own) - ranks.begin()));
  if (part.bytes >= kLeastForRegions) {
    own_ = std::make_shared<Heap>(
        copy, Extent{part.offset + kDirectoryBytes, part.bytes - kDirectoryBytes});
    regions_ = std::make_unique<RegionTable>(copy, std::vector<int>(ranks.begin(), ranks.end()),
                                             part_of(0), own, own_);
  } else if (part.bytes > 0) {
    own_ = std::make_shared<Heap>(copy, part);
  }
  others_ = std::make_unique<PeerMemory>(std::move(copy));
}

std::shared_ptr<Heap> HeapTable::share() const {
  if (own_ == nullptr && joined() && !told_.exchange(true)) {
    log(LogLevel::warning,
        "buffers are copied, not shared: a limit on file sizes (ulimit -f) leaves no room for "
        "sharing");
  }
  return own_;
}

}  // namespace tutti::shm
