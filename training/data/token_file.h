// Files of tokens in llm.c's format (github.com/karpathy/llm.c, dev/data/data_common.py): a header
// of 256 int32 (magic 20240520, version 1, number of tokens, zeros), then the tokens as uint16; all
// little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti::training {

// Reads a token file a piece at a time: it may be larger than memory. (It is not mapped, since
// whoever touches a page of a file that somebody has cut dies of SIGBUS.) Any number of threads may
// read.
class TokenFile {
 public:
  // Throws Error naming the path and what is wrong with the file; nothing malformed is accepted.
  explicit TokenFile(std::string path);

  uint64_t size() const { return size_; }  // tokens
  // Fills `tokens` from the one at `first` on. Throws Error naming the path where the file no
  // longer has them, or cannot be read.
  void read(uint64_t first, std::span<uint16_t> tokens) const;
  // Hands [first, end) over, a block at a time.
  void read_blocks(uint64_t first, uint64_t end,
                   const std::function<void(std::span<const uint16_t>)>& use) const;
  std::vector<uint16_t> tokens() const;  // all of them

 private:
  std::string path_;
  Fd file_;
  uint64_t size_ = 0;
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
