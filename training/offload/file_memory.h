// Memory in a file that nobody else sees, for state that is larger than the memory there is.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/fd.h"

namespace tutti::training {

// Zeroed bytes, aligned to a page, in a file without a name, which is gone when this is, or when
// the process ends. Any thread may use it. Ranges are of bytes of this memory.
class FileMemory {
 public:
  using Range = std::span<const std::byte>;

  // All of the file is allocated on the disk from the start. Throws Error(system), naming the
  // directory, where that has no room or cannot be written.
  FileMemory(const std::string& directory, size_t bytes);
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool contains(const void* address) const;

  // Starts reading the range's pages, and returns.
  void start_reading(Range range) const;
  // Returns when the range's pages are in memory; `writes`: and may be written without a fault.
  // Throws Error(system) where the file cannot be read: touching these pages would end the process.
  void load(Range range, bool writes) const;
  // Copies bytes to this address of the memory. Whole pages are not read for that. Throws as
  // evict() does.
  void store(Range bytes, std::byte* to) const;
  // Starts writing changed pages to the file, and returns.
  void start_writing(Range range) const;
  // Writes changed pages to the file and gives the memory of the range's pages back; they are read
  // again when they are touched. The page in which the range ends stays, unless the file ends
  // there. Throws Error(system) where the file cannot be written.
  void evict(Range range) const;

 private:
  struct Pages {
    size_t first, bytes;  // from the file's start
  };
  Pages pages_of(Range range, bool whole_last) const;
  void write_back(Pages pages, unsigned flags) const;

  std::string directory_;
  Fd file_;
  size_t size_;
  size_t mapped_;  // of it, a multiple of the page's size
  std::byte* data_ = nullptr;
};

}  // namespace tutti::training
