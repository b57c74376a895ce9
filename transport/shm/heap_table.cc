#include "transport/shm/heap_table.h"

#include <fcntl.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"

namespace tutti::shm {

void HeapTable::join(const Fd& file, uint64_t start, int ranks, int rank) {
  auto copy = std::make_shared<const Fd>(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
  if (!*copy) throw system_error("duplicate the descriptor of the shared memory", errno);
  const Extent part = part_of_heaps(*copy, start, ranks, rank);
  if (part.bytes > 0) own_ = std::make_shared<Heap>(copy, part);
  others_ = std::make_unique<PeerMemory>(std::move(copy));
}

std::shared_ptr<Heap> HeapTable::share() const {
  if (own_ == nullptr && joined() && !told_.exchange(true)) {
    log(LogLevel::warning,
        "buffers are not shared, but copied: a limit on the sizes of files (ulimit -f) leaves no "
        "room for them");
  }
  return own_;
}

}  // namespace tutti::shm
