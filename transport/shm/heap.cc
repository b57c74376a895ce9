#include "transport/shm/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace tutti::shm {

namespace {

size_t page() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

uint64_t round_up(uint64_t bytes) { return (bytes + page() - 1) / page() * page(); }

// As much as there is memory in the machine; a limit on file sizes would be a fatal signal.
uint64_t wanted_bytes() {
  uint64_t bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page();
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min<uint64_t>(bytes, limit.rlim_cur);
  }
  return bytes / page() * page();
}

// The whole pages within.
std::span<std::byte> whole_pages(std::span<std::byte> range) {
  const auto start = reinterpret_cast<uintptr_t>(range.data());
  const uint64_t first = round_up(start);
  const uint64_t last = (start + range.size()) / page() * page();
  if (last <= first) return {};
  return {reinterpret_cast<std::byte*>(first), last - first};
}

// Whether all of it is private memory that belongs to no file: only that can change its backing
// without anybody noticing.
bool is_plain_memory(std::span<const std::byte> range) {
  auto next = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t end = next + range.size();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; next < end && std::getline(maps, line);) {
    uintptr_t first = 0;
    uintptr_t last = 0;
    char access[5] = {};
    unsigned long inode = 1;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %lu", &first, &last, access, &inode) != 4) {
      return false;
    }
    if (last <= next) continue;
    const bool plain = first <= next && inode == 0 && std::string_view(access).starts_with("rw") &&
                       access[3] == 'p' && line.find("[stack") == std::string::npos;
    if (!plain) return false;
    next = last;
  }
  return next >= end;
}

}  // namespace

Heap::Heap() : memory_(::memfd_create("tutti-heap", MFD_CLOEXEC)) {
  if (!memory_) throw system_error("memfd_create of shared buffers", errno);
  void* base = MAP_FAILED;
  for (bytes_ = wanted_bytes(); bytes_ >= page(); bytes_ = bytes_ / 2 / page() * page()) {
    base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                  memory_.get(), 0);
    if (base != MAP_FAILED) break;
  }
  if (base == MAP_FAILED || ::ftruncate(memory_.get(), static_cast<off_t>(bytes_)) != 0) {
    const int error = errno;
    if (base != MAP_FAILED) ::munmap(base, bytes_);
    throw system_error(cat("mapping ", bytes_, " bytes for shared buffers"), error,
                       {.cause = "a limit on address space (ulimit -v) or file size (ulimit -f)"});
  }
  base_ = static_cast<std::byte*>(base);
  ::madvise(base_, bytes_, MADV_HUGEPAGE);  // where the system allows it of shared memory
  free_[0] = bytes_;
}

Heap::~Heap() { ::munmap(base_, bytes_); }

std::optional<uint64_t> Heap::take(uint64_t bytes) {
  const auto found =
      std::ranges::find_if(free_, [&](const auto& range) { return range.second >= bytes; });
  if (found == free_.end()) return std::nullopt;
  const auto [offset, length] = *found;
  free_.erase(found);
  if (length > bytes) free_[offset + bytes] = length - bytes;
  return offset;
}

// The pages go back to the system at once, whoever else has mapped them.
void Heap::give_back(const Range& range) {
  ::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(range.offset), static_cast<off_t>(range.bytes));
  auto here = free_.emplace(range.offset, range.bytes).first;
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

std::byte* Heap::allocate(size_t bytes) {
  const uint64_t length = round_up(std::max<size_t>(bytes, 1));
  const std::lock_guard lock(mutex_);
  const std::optional<uint64_t> offset = take(length);
  if (!offset) return nullptr;
  allocated_[base_ + *offset] = {*offset, length};
  return base_ + *offset;
}

void Heap::free(std::byte* data) {
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(data);
  if (found == allocated_.end()) return;
  give_back(found->second);
  allocated_.erase(found);
}

void Heap::adopt(std::span<std::byte> range) {
  const std::span<std::byte> pages = whole_pages(range);
  if (pages.empty()) return;
  if (!is_plain_memory(pages)) {
    throw Error(ErrorCode::invalid_argument, "the buffer cannot be registered",
                {.cause = "it is not plain private memory: a file, a stack, shared already, or not "
                          "there",
                 .remedy = "take memory from malloc() or new, or from the communicator"});
  }
  const std::lock_guard lock(mutex_);
  const std::optional<uint64_t> offset = take(pages.size());
  if (!offset) {
    throw Error(ErrorCode::system, cat("no room to register ", pages.size(), " bytes"),
                {.cause = "all of the machine's memory is registered or allocated"});
  }
  std::memcpy(base_ + *offset, pages.data(), pages.size());
  if (::mmap(pages.data(), pages.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             memory_.get(), static_cast<off_t>(*offset)) == MAP_FAILED) {
    const int error = errno;
    give_back({*offset, pages.size()});
    throw system_error("mapping a registered buffer", error);
  }
  adopted_[pages.data()] = {*offset, pages.size()};
  adoptions_ = adopted_.size();
}

void Heap::release(std::span<std::byte> range) {
  const std::span<std::byte> pages = whole_pages(range);
  const std::lock_guard lock(mutex_);
  const auto found = adopted_.find(pages.data());
  if (pages.empty() || found == adopted_.end()) return;
  void* copy =
      ::mmap(nullptr, pages.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED)
    throw system_error("memory for a buffer that is not shared any more", errno);
  std::memcpy(copy, pages.data(), pages.size());
  if (::mremap(copy, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) ==
      MAP_FAILED) {
    const int error = errno;
    ::munmap(copy, pages.size());
    throw system_error("moving a registered buffer back", error);
  }
  give_back(found->second);
  adopted_.erase(found);
  adoptions_ = adopted_.size();
}

std::optional<uint64_t> Heap::find(const std::byte* data, size_t bytes) const {
  if (data >= base_ && data + bytes <= base_ + bytes_) return static_cast<uint64_t>(data - base_);
  if (adoptions_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  auto after = adopted_.upper_bound(data);
  if (after == adopted_.begin()) return std::nullopt;
  const auto& [start, range] = *--after;
  if (data + bytes > start + range.bytes) return std::nullopt;
  return range.offset + static_cast<uint64_t>(data - start);
}

PeerHeap::PeerHeap(const Fd& memory) {
  struct stat status {};
  if (::fstat(memory.get(), &status) != 0) throw system_error("fstat of a peer's buffers", errno);
  bytes_ = static_cast<size_t>(status.st_size);
  void* base =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (base == MAP_FAILED) {
    throw system_error(cat("mapping ", bytes_, " bytes of a peer's buffers"), errno,
                       {.cause = "a limit on address space (ulimit -v)"});
  }
  base_ = static_cast<std::byte*>(base);
}

PeerHeap::~PeerHeap() { ::munmap(base_, bytes_); }

}  // namespace tutti::shm
