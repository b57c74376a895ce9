// Token files in llm.c's formats (github.com/karpathy/llm.c, dev/data/data_common.py): a header of
// 256 int32 (magic, version, number of tokens, zeros), then the tokens; all little-endian.
//
//   magic     version   tokens
//   20240520  1         uint16: GPT-2's
//   20240801  7         uint32: Llama 3's
//   20240801  107       uint32, our own: the top bit marks tokens that are not targets (prompts of
//                       fine-tuning); llm.c rejects it, since it would train on them
//
// TokenWriter uses header words that llm.c leaves zero for further properties, so that readers need
// not scan the tokens: their number in 64 bits, a checksum, the size of the tokenizer's vocabulary
// and its end-of-text token.
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

// Tokens have 31 bits. Bit 32 marks tokens that are not targets, which are therefore negative.
constexpr int32_t kUnpredicted = INT32_MIN;
constexpr int32_t unpredicted(int32_t token) { return token | kUnpredicted; }
constexpr bool is_predicted(int32_t token) { return token >= 0; }
constexpr int32_t id_of(int32_t token) { return token & ~kUnpredicted; }

struct TokenFormat {
  int64_t vocabulary = 0;              // upper bound of tokens, exclusive
  std::optional<int32_t> end_of_text;  // the token between documents
  bool marks_unpredicted = false;
};

// Properties of a file's tokens, from the header or from the tokens.
struct TokenSummary {
  TokenFormat format;
  // Equal for equal tokens. For files without a checksum that exceed kReadWhole, it covers the size
  // and blocks spread over the file.
  uint64_t fingerprint = 0;
};

// Reads a token file in pieces: it may exceed memory. (It is not mapped, since accessing a page of
// a truncated file raises SIGBUS.) Thread-safe.
class TokenFile {
 public:
  // Files without our header words are read completely up to this many bytes.
  static constexpr uint64_t kReadWhole = uint64_t{32} << 20;

  // Throws Error naming the path and the fault; no malformed file is accepted.
  explicit TokenFile(std::string path);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // tokens
  // Reads tokens from index `first` on. Throws Error naming the path if the file no longer has
  // them, or cannot be read.
  void read(uint64_t first, std::span<int32_t> tokens) const;
  std::vector<int32_t> tokens() const;  // all of them

  // Returns the header's properties if present. Otherwise inspects the tokens: the vocabulary then
  // covers the largest token, and at least that of the model for which the format is made. Throws
  // Error as read() does.
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
  std::optional<TokenSummary> told_;
  bool marks_ = false;
};

// Writes a token file. Until finish() the tokens are in PATH.partial, whose header is zeros: a
// truncated file is never accepted, and an older file at PATH is kept.
class TokenWriter {
 public:
  // Uses 16 bits per token if the vocabulary and the format permit. Throws Error if PATH exists but
  // is not a regular file, or PATH.partial cannot be written.
  TokenWriter(std::string path, const TokenFormat& format);
  ~TokenWriter();  // without finish(): removes the partial file
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // Writes tokens, which must be below the vocabulary, in one system call: pass many at a time.
  // Throws Error if the disk is full.
  void write(std::span<const int32_t> tokens);
  // Writes the header, syncs the file, then renames it. Must be the last call.
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
