#include "transport/shm/region_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/error.h"

namespace tutti::shm {

// The directory of a rank, which only that rank writes.
struct RegionTable::Directory {
  struct Entry {
    std::atomic<uint64_t> id;
    std::atomic<uint64_t> offset;  // offset in the file; 0: the entry is free
  };
  std::array<Entry, 256> entries;  // entries of communicators that are being created
};

RegionTable::RegionTable(std::shared_ptr<const Fd> file, std::vector<int> ranks,
                         const Extent& first, int own, std::shared_ptr<Heap> heap)
    : file_(std::move(file)),
      ranks_(std::move(ranks)),
      first_(first),
      own_(own),
      heap_(std::move(heap)),
      process_(::getpid()) {}

RegionTable::~RegionTable() {
  for (const auto& [rank, directory] : directories_) ::munmap(directory, sizeof(Directory));
}

RegionTable::Directory* RegionTable::directory_of(int rank) {
  Directory*& known = directories_[rank];
  if (known != nullptr) return known;
  const auto index = static_cast<uint64_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
  const int access = rank == own_ ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const base = ::mmap(nullptr, sizeof(Directory), access, MAP_SHARED, file_->get(),
                            static_cast<off_t>(first_.offset + index * first_.bytes));
  if (base == MAP_FAILED) {
    directories_.erase(rank);
    throw system_error("mmap of the directory of shared memory", errno,
                       {.cause = "the address space is limited (ulimit -v)"});
  }
  return known = static_cast<Directory*>(base);
}

std::shared_ptr<Region> RegionTable::create(uint64_t id, const Geometry& geometry) {
  const std::lock_guard lock(mutex_);
  reuse();
  for (Directory::Entry& entry : directory_of(own_)->entries) {
    if (entry.offset.load() != 0) continue;
    const std::optional<Extent> extent = heap_->take_room(geometry.total_bytes());
    if (!extent) break;
    std::shared_ptr<Region> region;
    try {
      region = Region::map(*file_, geometry, extent->offset);
    } catch (const Error&) {
      heap_->release_room(*extent);
      throw;
    }
    regions_[id] = {region, *extent, static_cast<uint32_t>(geometry.ranks)};
    entry.id.store(id);
    entry.offset.store(extent->offset);
    return region;
  }
  throw Error(ErrorCode::system, "no room for the shared memory of another communicator",
              {.cause = "too many communicators are being created at once, or file sizes are "
                        "limited (ulimit -f)"});
}

void RegionTable::withdraw(uint64_t id) {
  if (::getpid() != process_) return;  // a forked child has only a copy of this bookkeeping
  const std::lock_guard lock(mutex_);
  for (Directory::Entry& entry : directory_of(own_)->entries) {
    if (entry.offset.load() != 0 && entry.id.load() == id) entry.offset.store(0);
  }
}

void RegionTable::give_back(uint64_t id) {
  if (::getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found != regions_.end()) found->second.given_back = true;
  reuse();
}

// Looks for the region. An entry may be reused meanwhile, so its offset is read before and after
// the id.
std::shared_ptr<Region> RegionTable::find(uint64_t id, int owner, const Geometry& geometry) {
  const std::lock_guard lock(mutex_);
  for (const Directory::Entry& entry : directory_of(owner)->entries) {
    const uint64_t offset = entry.offset.load();
    if (offset == 0 || entry.id.load() != id || entry.offset.load() != offset) continue;
    return Region::map(*file_, geometry, offset);
  }
  return nullptr;
}

// Frees the room of regions that all members have left. The room is lost if a member died or never
// attached.
void RegionTable::reuse() {
  std::erase_if(regions_, [&](const auto& made) {
    const Own& own = made.second;
    if (!own.given_back || own.region->template at<Header>(0)->detached.load() < own.ranks) {
      return false;
    }
    heap_->release_room(own.extent);
    return true;
  });
}

}  // namespace tutti::shm
