// Inspects this process's mappings, because the owner of registered memory may have unmapped it,
// and something else may be mapped there now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"

namespace tutti::shm {

size_t page_bytes();

// Returns true if all of `range` is writable private memory that is not mapped from a file, is not
// a stack, and is not locked (mlock). Only such memory can be replaced without visible effects.
bool is_plain_memory(std::span<std::byte> range);

// Returns the parts of `pages` that are mappings of `file`, in ascending order. The first page of
// `pages` corresponds to `offset` in the file.
std::vector<std::span<std::byte>> parts_of_file(std::span<std::byte> pages, const Fd& file,
                                                uint64_t offset);

// Reads the process's page table.
class PageTable {
 public:
  PageTable();

  // Returns true only if every page of `range` is resident and belongs to a file or to shared
  // memory, so that no private memory has been mapped there. Needs one system call per 2 MiB.
  bool is_shared(std::span<const std::byte> range) const;

 private:
  Fd entries_;  // /proc/self/pagemap; empty if the system does not provide it
};

}  // namespace tutti::shm
