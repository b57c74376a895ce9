// Reads and writes token files in llm.c's formats (github.com/karpathy/llm.c,
// dev/data/data_common.py): a header of 256 int32 (magic, version, number of tokens, zeros), then
// the tokens; all little-endian.
//
//   magic     version   tokens
//   20240520  1         uint16: GPT-2's
//   20240801  7         uint32: Llama 3's
//   20240801  107       uint32, our own: the top bit marks tokens that are not targets (prompts of
//                       fine-tuning); llm.c rejects it, since it would train on them
//
// TokenWriter also stores properties in header words that llm.c leaves zero, so that readers need
// not scan the tokens: the number of tokens in 64 bits, a checksum, the size of the tokenizer's
// vocabulary, and the end-of-text token.
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

// Mark of tokens that are not targets. Tokens have 31 bits; the top bit is set in marked tokens,
// which are therefore negative.
constexpr int32_t kUnpredicted = INT32_MIN;
constexpr int32_t unpredicted(int32_t token) { return token | kUnpredicted; }
constexpr bool is_predicted(int32_t token) { return token >= 0; }
constexpr int32_t id_of(int32_t token) { return token & ~kUnpredicted; }

struct TokenFormat {
  int64_t vocabulary = 0;              // exclusive upper bound of tokens
  std::optional<int32_t> end_of_text;  // the token that separates documents
  bool marks_unpredicted = false;
};

// Properties of a file's tokens, read from the header or found by scanning the tokens.
struct TokenSummary {
  TokenFormat format;
  // A number that is equal for equal tokens. For a file without a checksum that exceeds kReadWhole,
  // it covers only the size and blocks spread over the file.
  uint64_t fingerprint = 0;
};

// Reads a token file, which may exceed memory, in parts. It does not map the file, because
// accessing a page of a truncated file would raise SIGBUS. Thread-safe.
class TokenFile {
 public:
  // Largest size in bytes at which a file without our header words is scanned completely.
  static constexpr uint64_t kReadWhole = uint64_t{32} << 20;

  // Opens a file. Throws Error that names the path and the fault, for any malformed file.
  explicit TokenFile(std::string path);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // Returns the number of tokens.
  // Reads tokens from index `first` on into `tokens`. Throws Error that names the path if the file
  // no longer has them, or cannot be read.
  void read(uint64_t first, std::span<int32_t> tokens) const;
  std::vector<int32_t> tokens() const;  // Returns all tokens.

  // Returns the properties in the header, if present. Otherwise derives them from the tokens, or
  // from a part of the tokens in a file above kReadWhole. The vocabulary's size is 256 if all
  // tokens are below 256; the size for the format's model (GPT-2 or Llama 3) if all tokens are
  // below that size; otherwise large enough for the largest token. Throws Error as read() does.
  TokenSummary summary() const;

 private:
  TokenSummary look() const;
  std::vector<std::byte> block_at(uint64_t place, uint64_t most) const;
  uint32_t largest_in(std::span<const std::byte> block) const;
  uint32_t largest_of_all() const;

  std::string path_;
  Fd file_;
  uint64_t size_ = 0;
  uint64_t width_ = 2;  // bytes per token
  std::optional<TokenSummary> own_summary_;
  bool marks_ = false;
};

// Writes a token file. Until finish() the tokens are in PATH.partial, whose header is zeros, so
// readers reject a truncated file. An older file at PATH is kept until finish().
class TokenWriter {
 public:
  // Creates PATH.partial. Uses 16 bits per token if the vocabulary and the format permit. Throws
  // Error if PATH exists but is not a regular file, or PATH.partial cannot be written.
  TokenWriter(std::string path, const TokenFormat& format);
  ~TokenWriter();  // Removes PATH.partial unless finish() has returned.
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // Writes tokens, which must be less than the vocabulary's size, in one system call; callers
  // should therefore pass many at a time. Throws Error if the disk is full.
  void write(std::span<const int32_t> tokens);
  // Writes the header, syncs the file, then renames it to PATH. Must be the last call.
  void finish();

  uint64_t count() const { return count_; }  // Returns the number of tokens written so far.

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
