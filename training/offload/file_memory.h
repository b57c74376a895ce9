// Memory that is mapped from a private file, for state that exceeds physical memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/fd.h"

namespace tutti::training {

// Zeroed memory, aligned to a page, in an unlinked file, which the kernel deletes when the object
// or the process ends. Thread-safe. Ranges must be parts of this memory.
class FileMemory {
 public:
  using Range = std::span<const std::byte>;

  // Allocates all blocks of the file. Throws Error(system), naming the directory, if the disk is
  // full or the directory cannot be written.
  FileMemory(const std::string& directory, size_t bytes);
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool contains(const void* address) const;

  // Starts to read the range's pages. Does not block for the disk.
  void start_reading(Range range) const;
  // Blocks until the range's pages are in memory and, if `writes` is true, can be written without a
  // page fault. Throws Error(system) if the file cannot be read, whereas touching such a page would
  // raise SIGBUS.
  void load(Range range, bool writes) const;
  // Copies `bytes` to address `to` in this memory, without reading pages that are completely
  // overwritten. Throws as evict() does.
  void store(Range bytes, std::byte* to) const;
  // Starts to write the range's dirty pages to the file. Does not wait for the disk.
  void start_writing(Range range) const;
  // Writes the range's dirty pages to the file and releases the memory of the range's pages, which
  // are read again when they are touched. The page in which the range ends stays in memory, unless
  // the file ends there. Throws Error(system) if the file cannot be written.
  void evict(Range range) const;

 private:
  struct Pages {
    size_t first, bytes;  // offset from the file's start, and length
  };
  Pages pages_of(Range range, bool whole_last) const;
  void write_back(Pages pages, unsigned flags) const;

  std::string directory_;
  Fd file_;
  size_t size_;
  size_t mapped_;  // size_ rounded up to pages
  std::byte* data_ = nullptr;
};

}  // namespace tutti::training
