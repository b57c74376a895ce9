#include "transport/shm/mappings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

namespace tutti::shm {

namespace {

// One line of /proc/self/maps.
struct MapsLine {
  uintptr_t first = 0;
  uintptr_t last = 0;
  std::array<char, 5> access{};
  uint64_t offset = 0;  // offset in the file
  unsigned major = 0;   // number of the device
  unsigned minor = 0;
  unsigned long inode = 0;
  bool is_stack = false;

  bool is_private_memory() const {
    return inode == 0 && access[0] == 'r' && access[1] == 'w' && access[3] == 'p' && !is_stack;
  }
};

// Calls `visit` for each mapping that overlaps `range`, in ascending order, until it returns false.
void visit_mappings(std::span<const std::byte> range,
                    const std::function<bool(const MapsLine&)>& visit) {
  const auto first = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t end = first + range.size();
  std::ifstream maps("/proc/self/maps");
  for (std::string text; std::getline(maps, text);) {
    MapsLine line;
    if (std::sscanf(text.c_str(), "%lx-%lx %4s %lx %x:%x %lu", &line.first, &line.last,
                    line.access.data(), &line.offset, &line.major, &line.minor, &line.inode) != 7) {
      return;
    }
    if (line.last <= first) continue;
    if (line.first >= end) return;
    line.is_stack = text.find("[stack") != std::string::npos;
    if (!visit(line)) return;
  }
}

}  // namespace

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

bool is_plain_memory(std::span<std::byte> range) {
  auto next = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t end = next + range.size();
  visit_mappings(range, [&](const MapsLine& line) {
    if (line.first > next || !line.is_private_memory()) return false;
    next = line.last;
    return true;
  });
  // MS_INVALIDATE fails for locked memory; here it has no other effect.
  return next >= end && ::msync(range.data(), range.size(), MS_ASYNC | MS_INVALIDATE) == 0;
}

std::vector<std::span<std::byte>> parts_of_file(std::span<std::byte> pages, const Fd& file,
                                                uint64_t offset) {
  std::vector<std::span<std::byte>> parts;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return parts;
  const auto first = reinterpret_cast<uintptr_t>(pages.data());
  visit_mappings(pages, [&](const MapsLine& line) {
    const uintptr_t from = std::max(line.first, first);
    const uintptr_t to = std::min(line.last, first + pages.size());
    const bool same_file = line.inode == status.st_ino && line.major == major(status.st_dev) &&
                           line.minor == minor(status.st_dev);
    if (same_file && line.offset + (from - line.first) == offset + (from - first)) {
      parts.push_back(pages.subspan(from - first, to - from));
    }
    return true;
  });
  return parts;
}

PageTable::PageTable() : entries_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}

bool PageTable::is_shared(std::span<const std::byte> range) const {
  constexpr uint64_t kPresent = uint64_t{1} << 63;
  constexpr uint64_t kOfFile = uint64_t{1} << 61;
  constexpr uint64_t kBoth = kPresent | kOfFile;
  if (range.empty()) return true;
  const auto start = reinterpret_cast<uintptr_t>(range.data());
  uint64_t page = start / page_bytes();
  const uint64_t end = (start + range.size() - 1) / page_bytes() + 1;
  std::array<uint64_t, 512> entries;
  while (page < end) {
    const uint64_t count = std::min<uint64_t>(end - page, entries.size());
    const auto bytes = static_cast<ssize_t>(count * sizeof(uint64_t));
    if (::pread(entries_.get(), entries.data(), static_cast<size_t>(bytes),
                static_cast<off_t>(page * sizeof(uint64_t))) != bytes) {
      return false;
    }
    const auto known = std::span(entries).first(count);
    if (!std::ranges::all_of(known, [](uint64_t entry) { return (entry & kBoth) == kBoth; })) {
      return false;
    }
    page += count;
  }
  return true;
}

}  // namespace tutti::shm
