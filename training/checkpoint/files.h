// Reads whole files, and writes files durably.
//
// Functions that fail throw an Error that names the file. Its code is `system`, or
// `invalid_argument` if the file to read is not a regular file.
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

// A regular file mapped for reading. Bytes are read from the disk when they are accessed. The file
// must not be truncated while it is mapped: accessing lost pages raises SIGBUS.
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

// A new file, written sequentially. It replaces an existing file of that name. The destructor
// removes the file unless finish() has returned.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Blocks until the bytes are on the disk.
  void finish();

  // Return the size in bytes and the checksum of all bytes written so far.
  uint64_t size() const { return size_; }
  std::string checksum() const { return checksum_.hex(); }
  // Returns the checksum of the bytes written since the last call, or since the start.
  std::string take_part_checksum() { return std::exchange(part_, Checksum()).hex(); }

 private:
  void put(std::span<const std::byte> slice);
  void flush();
  void write_out(std::span<const std::byte> bytes);
  [[noreturn]] void fail(const char* what, int errno_value) const;

  std::string path_;
  Fd fd_;
  std::vector<std::byte> buffer_;  // collects small writes
  uint64_t size_ = 0;
  uint64_t written_ = 0;  // bytes that were passed to the system
  uint64_t to_disk_ = 0;  // bytes for which writeback to the disk has started
  Checksum checksum_;
  Checksum part_;
  bool finished_ = false;
};

// Returns an Error with the system's message for `errno_value` and, for common errors, a remedy.
Error file_error(const char* what, const std::string& path, int errno_value);

// Blocks until the directory's entries are on the disk.
void sync_directory(const std::string& path);
// Replaces the file's content by `text` atomically: a reader sees either the old or the new
// content.
void replace_file(const std::string& path, std::string_view text);
std::string read_text(const std::string& path);
// Removes the folder and its contents. Only warns on failure, because a folder that remains does no
// harm except that it takes space.
void remove_folder(const std::string& path);

}  // namespace tutti::training
