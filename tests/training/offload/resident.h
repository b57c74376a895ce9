// Measures how much of a range of a file is in physical memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace tutti::training::testing {

// Returns the number of bytes in those pages of the range that are in the page cache. The range
// must start at a page boundary.
inline size_t resident_bytes(std::span<const std::byte> range) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((range.size() + page - 1) / page);
  void* const first = const_cast<std::byte*>(range.data());
  if (::mincore(first, range.size(), pages.data()) != 0) return range.size();
  const auto there = std::ranges::count_if(pages, [](unsigned char at) { return (at & 1) != 0; });
  return static_cast<size_t>(there) * page;
}

}  // namespace tutti::training::testing
