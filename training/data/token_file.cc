#include "training/data/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/git_lfs.h"
#include "base/text.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is read as it is");

using Header = std::array<int32_t, 256>;
constexpr int32_t kNarrowMagic = 20240520;
constexpr int32_t kNarrowVersion = 1;
constexpr int32_t kWideMagic = 20240801;
constexpr int32_t kWideVersion = 7;
constexpr int32_t kMarkedVersion = 107;
constexpr uint64_t kMostCounted = std::numeric_limits<int32_t>::max();
// Defaults for files without our header words, by format.
constexpr TokenFormat kGpt2{.vocabulary = 50257, .end_of_text = 50256};
constexpr TokenFormat kLlama3{.vocabulary = 128256, .end_of_text = 128000};
constexpr int64_t kBytes = 256;
constexpr uint64_t kTokenBlock = uint64_t{1} << 20;  // number of bytes per read

// Our words in the header.
struct OwnWords {
  static constexpr size_t kPlace = 16;           // index of the first word
  static constexpr int32_t kMagic = 0x54545554;  // the text "TUTT"

  int32_t magic = kMagic;
  int32_t end_of_text = -1;
  uint64_t count = 0;
  uint64_t checksum = 0;
  int64_t vocabulary = 0;
};

[[noreturn]] void refuse_tokens(const std::string& path, const std::string& cause) {
  throw Error(ErrorCode::invalid_argument, cat(path, " is not a token file"),
              {.cause = cause, .remedy = "write it with `tutti tokenize` or with llm.c"});
}

OwnWords own_words(const Header& header) {
  OwnWords words;
  std::memcpy(static_cast<void*>(&words), &header[OwnWords::kPlace], sizeof(words));
  return words;
}

// Checks the header. Returns the number of bytes per token.
uint64_t check_kind(const std::string& path, const Header& header) {
  if (header[0] != kNarrowMagic && header[0] != kWideMagic) {
    refuse_tokens(
        path, cat("its magic number is ", header[0], ", not ", kNarrowMagic, " or ", kWideMagic));
  }
  const bool wide = header[0] == kWideMagic;
  if (wide ? header[1] != kWideVersion && header[1] != kMarkedVersion
           : header[1] != kNarrowVersion) {
    refuse_tokens(
        path, cat("its version is ", header[1], ", not ", wide ? kWideVersion : kNarrowVersion));
  }
  return wide ? sizeof(uint32_t) : sizeof(uint16_t);
}

void check_count(const std::string& path, const Header& header, uint64_t bytes, uint64_t width) {
  if (bytes % width != 0) {
    refuse_tokens(
        path, cat("the file has ", bytes, " bytes after its header, not a multiple of the ", width,
                  " bytes of a token"));
  }
  const uint64_t found = bytes / width;
  const OwnWords own = own_words(header);
  const bool is_own = own.magic == OwnWords::kMagic;
  if (is_own && own.count != found) {
    refuse_tokens(path,
                  cat("its header specifies ", own.count, " tokens, but the file has ", found));
  }
  const uint64_t counted = is_own ? std::min(found, kMostCounted) : found;
  if (header[2] < 0 || static_cast<uint64_t>(header[2]) != counted) {
    refuse_tokens(path,
                  cat("its header specifies ", header[2], " tokens, but the file has ", found));
  }
  if (is_own && (own.vocabulary < 1 || own.end_of_text >= own.vocabulary)) {
    refuse_tokens(path, cat("its header specifies a vocabulary of ", own.vocabulary,
                            " and the end-of-text token ", own.end_of_text));
  }
}

void read_exactly(const std::string& path, int file, uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count == 0) {
      throw Error(
          ErrorCode::invalid_argument,
          cat("the token file ", path, " was truncated during the run"),
          {.cause = "another program truncated or rewrote it while it was read",
           .remedy = "do not change the data during the run; write new data to another file"});
    }
    if (count < 0) {
      if (errno == EINTR) continue;
      throw system_error(cat("cannot read the token file ", path), errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

}  // namespace

TokenFile::TokenFile(std::string path) : path_(std::move(path)) {
  file_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) {
    throw system_error(cat("cannot read the token file ", path_), errno,
                       {.remedy = "check the path and its permissions"});
  }
  if (!S_ISREG(status.st_mode)) refuse_tokens(path_, "the path is not a regular file");
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes < sizeof(Header)) {
    std::string text(bytes, '\0');
    read_exactly(path_, file_.get(), 0, std::as_writable_bytes(std::span(text)));
    if (is_git_lfs_pointer(text)) {
      throw Error(ErrorCode::invalid_argument, cat(path_, " is not a token file"),
                  {.cause = kGitLfsCause, .remedy = kGitLfsRemedy});
    }
    refuse_tokens(path_, cat("the file has ", bytes, " bytes, but its header alone requires ",
                             sizeof(Header)));
  }
  Header header;
  read_exactly(path_, file_.get(), 0, std::as_writable_bytes(std::span(header)));
  width_ = check_kind(path_, header);
  check_count(path_, header, bytes - sizeof(Header), width_);
  size_ = (bytes - sizeof(Header)) / width_;
  marks_ = header[0] == kWideMagic && header[1] == kMarkedVersion;
  const OwnWords own = own_words(header);
  if (own.magic != OwnWords::kMagic) return;
  TokenSummary& own_summary = own_summary_.emplace();
  own_summary.format.vocabulary = own.vocabulary;
  own_summary.format.marks_unpredicted = marks_;
  if (own.end_of_text >= 0) own_summary.format.end_of_text = own.end_of_text;
  own_summary.fingerprint = own.checksum;
}

// Reads narrow tokens into the end of the buffer for wide ones, and widens them from the front, so
// that no token is overwritten before it is read.
void TokenFile::read(uint64_t first, std::span<int32_t> tokens) const {
  const std::span<std::byte> bytes =
      std::as_writable_bytes(tokens).last(tokens.size() * static_cast<size_t>(width_));
  read_exactly(path_, file_.get(), sizeof(Header) + first * width_, bytes);
  if (width_ == sizeof(int32_t)) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint16_t narrow = 0;
    std::memcpy(&narrow, bytes.data() + i * sizeof(narrow), sizeof(narrow));
    tokens[i] = narrow;
  }
}

std::vector<int32_t> TokenFile::tokens() const {
  std::vector<int32_t> all(size_);
  read(0, all);
  return all;
}

TokenSummary TokenFile::summary() const { return own_summary_ ? *own_summary_ : look(); }

// Returns up to `most` bytes from `place` on, counted from the first token.
std::vector<std::byte> TokenFile::block_at(uint64_t place, uint64_t most) const {
  std::vector<std::byte> bytes(std::min(most, size_ * width_ - place));
  read_exactly(path_, file_.get(), sizeof(Header) + place, bytes);
  return bytes;
}

uint32_t TokenFile::largest_in(std::span<const std::byte> block) const {
  uint32_t largest = 0;
  for (size_t at = 0; at < block.size(); at += width_) {
    uint32_t token = 0;
    std::memcpy(&token, block.data() + at, width_);
    largest = std::max(largest, marks_ ? token & ~static_cast<uint32_t>(kUnpredicted) : token);
  }
  return largest;
}

uint32_t TokenFile::largest_of_all() const {
  uint32_t largest = 0;
  for (uint64_t place = 0; place < size_ * width_; place += kTokenBlock) {
    largest = std::max(largest, largest_in(block_at(place, kTokenBlock)));
  }
  return largest;
}

// Reads all blocks of the file or, if it is large, blocks spread evenly over it.
TokenSummary TokenFile::look() const {
  constexpr uint64_t kSparseBlock = uint64_t{64} << 10;
  constexpr uint64_t kSparseBlocks = 256;
  const uint64_t all = size_ * width_;
  const bool whole = all <= kReadWhole;
  const uint64_t block = whole ? kTokenBlock : kSparseBlock;
  const uint64_t blocks = whole ? (all + kTokenBlock - 1) / kTokenBlock : kSparseBlocks;
  uint64_t hash = size_;
  uint32_t largest = 0;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t place =
        whole ? i * block : (all - block) / width_ * i / (kSparseBlocks - 1) * width_;
    const std::vector<std::byte> bytes = block_at(place, block);
    hash = XXH3_64bits_withSeed(bytes.data(), bytes.size(), hash);
    largest = std::max(largest, largest_in(bytes));
  }
  const TokenFormat& usual = width_ == sizeof(uint16_t) ? kGpt2 : kLlama3;
  // A file of another tokenizer than the format's may have larger tokens in unread parts. Tokens of
  // 16 bits have a known bound; a file of wider tokens must be read completely.
  if (!whole && largest >= usual.vocabulary) {
    largest = width_ == sizeof(uint16_t) ? (1u << 16) - 1 : largest_of_all();
  }
  if (largest > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    refuse_tokens(path_, cat("its token ", largest, " exceeds 31 bits"));
  }
  const int64_t kinds = size_ == 0 ? 0 : int64_t{largest} + 1;
  TokenSummary found{.format = usual, .fingerprint = hash};
  if (kinds <= kBytes || kinds > usual.vocabulary) {
    found.format.vocabulary = std::max(kinds, kBytes);
    found.format.end_of_text.reset();
  }
  found.format.marks_unpredicted = marks_;
  return found;
}

void TokenWriter::FreeHash::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

TokenWriter::TokenWriter(std::string path, const TokenFormat& format)
    : path_(std::move(path)),
      partial_(path_ + ".partial"),
      format_(format),
      wide_(format.marks_unpredicted || format.vocabulary > int64_t{1} << 16),
      hash_(XXH3_createState()) {
  XXH3_64bits_reset(hash_.get());
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::invalid_argument, cat("cannot write tokens to ", path_),
                {.cause = "the path is not a regular file", .remedy = "use a regular file"});
  }
  file_ = Fd(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file_) {
    throw system_error(cat("cannot write ", partial_), errno,
                       {.remedy = "use a file in a directory with write permission"});
  }
  // the header, which is skipped here, reads as zeros
  if (::lseek(file_.get(), sizeof(Header), SEEK_SET) < 0) {
    throw system_error(cat("cannot write ", partial_), errno);
  }
}

TokenWriter::~TokenWriter() {
  if (file_) ::unlink(partial_.c_str());
}

void TokenWriter::write_bytes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written > 0) bytes = bytes.subspan(static_cast<size_t>(written));
    if (written < 0 && errno != EINTR) throw system_error(cat("cannot write ", partial_), errno);
  }
}

void TokenWriter::write(std::span<const int32_t> tokens) {
  std::vector<uint16_t> narrow;
  if (!wide_) narrow.assign(tokens.begin(), tokens.end());
  const std::span<const std::byte> bytes =
      wide_ ? std::as_bytes(tokens) : std::as_bytes(std::span<const uint16_t>(narrow));
  write_bytes(bytes);
  XXH3_64bits_update(hash_.get(), bytes.data(), bytes.size());
  count_ += tokens.size();
}

void TokenWriter::finish() {
  Header header = {kNarrowMagic, kNarrowVersion};
  if (wide_) header = {kWideMagic, format_.marks_unpredicted ? kMarkedVersion : kWideVersion};
  header[2] = static_cast<int32_t>(std::min(count_, kMostCounted));
  const OwnWords own{.end_of_text = format_.end_of_text.value_or(-1),
                     .count = count_,
                     .checksum = mix_bits(XXH3_64bits_digest(hash_.get()) ^ count_),
                     .vocabulary = format_.vocabulary};
  std::memcpy(&header[OwnWords::kPlace], &own, sizeof(own));
  if (::lseek(file_.get(), 0, SEEK_SET) < 0) {
    throw system_error(cat("cannot write ", partial_), errno);
  }
  write_bytes(std::as_bytes(std::span(header)));
  if (::fsync(file_.get()) != 0) throw system_error(cat("cannot write ", partial_), errno);
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) {
    throw system_error(cat("cannot rename ", partial_, " to ", path_), errno);
  }
  file_.reset();
}

}  // namespace tutti::training
