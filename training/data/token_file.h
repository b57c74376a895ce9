// Files of tokens in llm.c's formats (github.com/karpathy/llm.c, dev/data/data_common.py): a header
// of 256 int32 (magic, version, number of tokens, zeros), then the tokens; all little-endian.
//
//   magic     version   tokens
//   20240520  1         uint16: GPT-2's
//   20240801  7         uint32: Llama 3's
//   20240801  107       uint32, our own: the top bit marks tokens that are not to be predicted (the
//                       prompts of fine-tuning); llm.c refuses it, as it would train on them
//
// In words of the header that llm.c leaves at zero, TokenWriter tells what else is to be known of
// the tokens, so that nobody has to read all of them for it: their number in 64 bits, a checksum,
// the tokenizer's vocabulary and its end-of-text token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"

struct XXH3_state_s;

namespace tutti::training {

// Tokens have 31 bits. One that is not to be predicted has the 32nd too: it is negative.
constexpr int32_t kUnpredicted = INT32_MIN;
constexpr int32_t unpredicted(int32_t token) { return token | kUnpredicted; }
constexpr bool is_predicted(int32_t token) { return token >= 0; }
constexpr int32_t id_of(int32_t token) { return token & ~kUnpredicted; }

struct TokenFormat {
  int64_t vocabulary = 0;              // above every token
  std::optional<int32_t> end_of_text;  // the token between documents
  bool marks_unpredicted = false;
};

// What a file tells of its tokens, or a look at it.
struct TokenSummary {
  TokenFormat format;
  // The same tokens give the same number. Of a file without a checksum that is larger than
  // kReadWhole it is of its size and of blocks all over it.
  uint64_t fingerprint = 0;
};

// Reads a token file a piece at a time: it may be larger than memory. (It is not mapped, since
// whoever touches a page of a file that somebody has cut dies of SIGBUS.) Any number of threads may
// read.
class TokenFile {
 public:
  // A file without our words in its header is read whole up to this many bytes.
  static constexpr uint64_t kReadWhole = uint64_t{32} << 20;

  // Throws Error naming the path and what is wrong with the file; nothing malformed is accepted.
  explicit TokenFile(std::string path);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // tokens
  // Fills `tokens` from the one at `first` on. Throws Error naming the path where the file no
  // longer has them, or cannot be read.
  void read(uint64_t first, std::span<int32_t> tokens) const;
  std::vector<int32_t> tokens() const;  // all of them

  // From the header where it tells; else from a look at the tokens: the vocabulary is then that of
  // the largest token, and at least that of the model which the format is for. Throws Error as
  // read() does.
  TokenSummary summary() const;

 private:
  TokenSummary look() const;
  std::vector<std::byte> block_at(uint64_t place, uint64_t most) const;
  uint32_t largest_in(std::span<const std::byte> block) const;
  uint32_t largest_of_all() const;

  std::string path_;
  Fd file_;
  uint64_t size_ = 0;
  uint64_t width_ = 2;  // bytes of a token
  std::optional<TokenSummary> told_;
  bool marks_ = false;
};

// Writes a token file. Until finish() the tokens are in PATH.partial, whose header is zeros: nobody
// takes what was cut off for the whole, and an older file at PATH stays as it is.
class TokenWriter {
 public:
  // 16 bits a token where the vocabulary and the format permit. Throws Error: PATH is there but no
  // regular file, or PATH.partial cannot be written.
  TokenWriter(std::string path, const TokenFormat& format);
  ~TokenWriter();  // without finish(): removes what was written
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // Tokens below the vocabulary. One system call: give it many at a time. Throws Error: the disk is
  // full.
  void write(std::span<const int32_t> tokens);
  // Writes the header, sees everything safe on disk, then renames. Nothing may be written after.
  void finish();

  uint64_t count() const { return count_; }  // tokens written so far

 private:
  struct FreeHash {
    void operator()(XXH3_state_s* state) const;
  };
  void write_bytes(std::span<const std::byte> bytes);

  std::string path_;
  std::string partial_;
  TokenFormat format_;
  bool wide_;
  Fd file_;
  uint64_t count_ = 0;
  std::unique_ptr<XXH3_state_s, FreeHash> hash_;
};

}  // namespace tutti::training
