#include "transport/shm/peer_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti::shm {

Mapping::~Mapping() { ::munmap(const_cast<std::byte*>(base_), extent_.bytes); }

std::shared_ptr<const Mapping> PeerMemory::try_to_map(const Extent& segment) const {
  void* const base = ::mmap(nullptr, segment.bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE,
                            file_->get(), static_cast<off_t>(segment.offset));
  if (base == MAP_FAILED) return nullptr;
  // A core file should contain one rank's memory only.
  ::madvise(base, segment.bytes, MADV_DONTDUMP);
  return std::make_shared<const Mapping>(static_cast<const std::byte*>(base), segment);
}

std::shared_ptr<const Mapping> PeerMemory::map(const Extent& segment) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<const Mapping>& known : mappings_) {
    if (known->extent().contains(segment)) return known;
  }
  // Segments in use do not overlap, so older ones that overlap are gone.
  std::erase_if(mappings_, [&](const auto& old) { return old->extent().overlaps(segment); });
  std::shared_ptr<const Mapping> mapping = try_to_map(segment);
  if (mapping == nullptr) {
    std::erase_if(mappings_, [](const auto& idle) { return idle.use_count() == 1; });
    mapping = try_to_map(segment);
  }
  if (mapping != nullptr) mappings_.push_back(mapping);
  return mapping;
}

std::shared_ptr<std::byte> PeerMemory::map_to_write(const Extent& part) const {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t before = part.offset % page;
  const size_t bytes = before + part.bytes;
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                            file_->get(), static_cast<off_t>(part.offset - before));
  if (base == MAP_FAILED) return nullptr;
  ::madvise(base, bytes, MADV_DONTDUMP);
  const std::shared_ptr<std::byte> pages(static_cast<std::byte*>(base),
                                         [bytes](std::byte* data) { ::munmap(data, bytes); });
  return {pages, pages.get() + before};
}

int PeerMemory::read(uint64_t offset, std::span<std::byte> destination) const {
  for (size_t done = 0; done < destination.size();) {
    const ssize_t got = ::pread(file_->get(), destination.data() + done, destination.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 ? EIO : errno;
    done += static_cast<size_t>(got);
  }
  return 0;
}

}  // namespace tutti::shm
