// Tells what this process has mapped at an address: memory that was registered may have been
// unmapped by its owner, and something else may be there now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"

namespace tutti::shm {

size_t page_bytes();

// True if all of `range` is writable private memory that belongs to no file, is no stack and is not
// locked (mlock): only that can change its backing without anybody noticing.
bool is_plain_memory(std::span<std::byte> range);

// The parts of `pages` that are mappings of `file`, in ascending order, where the first of the
// pages is at `offset` in the file.
std::vector<std::span<std::byte>> parts_of_file(std::span<std::byte> pages, const Fd& file,
                                                uint64_t offset);

// Looks pages up in the page table of the process.
class PageTable {
 public:
  PageTable();

  // True only if every page of `range` is in memory and belongs to a file or to shared memory, so
  // none of it is private memory that was mapped there meanwhile. One system call for 2 MiB.
  bool is_shared(std::span<const std::byte> range) const;

 private:
  Fd entries_;  // /proc/self/pagemap; nothing where the system does not show it
};

}  // namespace tutti::shm
