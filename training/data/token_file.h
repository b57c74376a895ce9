// Files of tokens in llm.c's format (github.com/karpathy/llm.c, dev/data/data_common.py): a header
// of 256 int32 (magic 20240520, version 1, number of tokens, zeros), then the tokens as uint16; all
// little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/fd.h"

namespace tutti::training {

// Maps a token file into memory; pages are read when they are first touched, and are shared by all
// ranks of the host. The file must not be cut short while it is mapped. Any number of threads may
// read.
class TokenFile {
 public:
  // Throws Error naming the path and what is wrong with the file; nothing malformed is accepted.
  explicit TokenFile(const std::string& path);

  // Valid as long as this object, or the one it is moved to, lives.
  std::span<const uint16_t> tokens() const;

 private:
  struct Unmap {
    size_t bytes;
    void operator()(const std::byte* start) const;
  };
  std::unique_ptr<const std::byte, Unmap> map_;
};

// Writes a token file. Until finish() the tokens are in PATH.partial, whose header is zeros: nobody
// takes what was cut off for the whole, and an older file at PATH stays as it is.
class TokenWriter {
 public:
  // Throws Error: PATH is there but no regular file, or PATH.partial cannot be written.
  explicit TokenWriter(std::string path);
  ~TokenWriter();  // without finish(): removes what was written
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // One system call: give it many tokens at a time. Throws Error: the disk is full, or the tokens
  // are more than the format's int32 can count.
  void write(std::span<const uint16_t> tokens);
  // Writes the header, sees everything safe on disk, then renames. Nothing may be written after.
  void finish();

  uint64_t count() const { return count_; }  // tokens written so far

 private:
  void write_bytes(std::span<const std::byte> bytes);

  std::string path_;
  std::string partial_;
  Fd file_;
  uint64_t count_ = 0;
};

}  // namespace tutti::training
