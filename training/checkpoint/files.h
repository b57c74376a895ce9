// Files that are read whole, and files that are on the disk when they are said to be written.
//
// All functions throw Error(system) that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "training/checkpoint/checksum.h"

namespace tutti::training {

// A regular file in memory, for reading. Bytes come from the disk when they are touched. The file
// must not be cut while it is mapped: the system ends a process that touches what is gone.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// A new file, written from its start to its end; one of that name is replaced. Unless finish()
// returns, the destructor removes it.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Returns when the bytes are on the disk.
  void finish();

  // Of what was written so far.
  uint64_t size() const { return size_; }
  std::string checksum() const { return checksum_.hex(); }
  // Checksum of what was written since the last call, or since the start.
  std::string take_part_checksum() { return std::exchange(part_, Checksum()).hex(); }

 private:
  void flush();
  [[noreturn]] void fail(const char* what, int errno_value) const;

  std::string path_;
  Fd fd_;
  std::vector<std::byte> buffer_;
  uint64_t size_ = 0;
  Checksum checksum_;
  Checksum part_;
  bool finished_ = false;
};

// What the system says of a file, with a remedy for what it says often.
Error file_error(const char* what, const std::string& path, int errno_value);

// The names in the directory are on the disk.
void sync_directory(const std::string& path);
// Gives the file this content at once: whoever reads it sees the old or the new one.
void replace_file(const std::string& path, std::string_view text);
std::string read_text(const std::string& path);
// Of the folder and all in it. What cannot be removed takes up space and no more: a warning.
void remove_folder(const std::string& path);

}  // namespace tutti::training
