#include "training/data/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is read as it is");

using Header = std::array<int32_t, 256>;
constexpr int32_t kMagic = 20240520;
constexpr int32_t kMagicOf32Bits = 20240801;  // llm.c's other format, for Llama 3
constexpr int32_t kVersion = 1;
constexpr uint64_t kMaxTokens = std::numeric_limits<int32_t>::max();

[[noreturn]] void refuse(const std::string& path, const std::string& cause) {
  throw Error(ErrorCode::invalid_argument, cat(path, " is not a token file"),
              {.cause = cause, .remedy = "write it with `tutti tokenize`, or as llm.c does"});
}

// Checks a header against the file's size in bytes.
void check(const std::string& path, const Header& header, uint64_t bytes) {
  if (header[0] == kMagicOf32Bits) {
    refuse(path, cat("its magic number ", header[0], " is that of 32-bit tokens (Llama 3)"));
  }
  if (header[0] != kMagic) {
    refuse(path, cat("its magic number is ", header[0], ", not ", kMagic));
  }
  if (header[1] != kVersion) {
    refuse(path, cat("it is of version ", header[1], ", not ", kVersion));
  }
  const uint64_t body = bytes - sizeof(Header);
  if (body % sizeof(uint16_t) != 0) {
    refuse(path, cat("it has ", body, " bytes after its header, an odd number for 16-bit tokens"));
  }
  const uint64_t found = body / sizeof(uint16_t);
  if (header[2] < 0 || static_cast<uint64_t>(header[2]) != found) {
    refuse(path, cat("its header counts ", header[2], " tokens, but there are ", found));
  }
}

void read_exactly(const std::string& path, int file, uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count == 0) {
      throw Error(
          ErrorCode::invalid_argument, cat("the token file ", path, " has become shorter"),
          {.cause = "another program has cut or rewritten it while it was read",
           .remedy = "leave the data alone during the run; write new data to another file"});
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
  if (!S_ISREG(status.st_mode)) refuse(path_, "it is no regular file");
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes < sizeof(Header)) {
    refuse(path_, cat("it has ", bytes, " bytes; its header alone has ", sizeof(Header)));
  }
  Header header;
  read_exactly(path_, file_.get(), 0, std::as_writable_bytes(std::span(header)));
  check(path_, header, bytes);
  size_ = (bytes - sizeof(Header)) / sizeof(uint16_t);
}

void TokenFile::read(uint64_t first, std::span<uint16_t> tokens) const {
  read_exactly(path_, file_.get(), sizeof(Header) + first * sizeof(uint16_t),
               std::as_writable_bytes(tokens));
}

void TokenFile::read_blocks(uint64_t first, uint64_t end,
                            const std::function<void(std::span<const uint16_t>)>& use) const {
  constexpr uint64_t kBlock = 1 << 19;
  std::vector<uint16_t> block(std::min(kBlock, end - first));
  while (first < end) {
    const std::span<uint16_t> part = std::span(block).first(std::min(kBlock, end - first));
    read(first, part);
    use(part);
    first += part.size();
  }
}

std::vector<uint16_t> TokenFile::tokens() const {
  std::vector<uint16_t> all(size_);
  read(0, all);
  return all;
}

TokenWriter::TokenWriter(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::invalid_argument, cat("cannot write tokens to ", path_),
                {.cause = "it is no regular file", .remedy = "name a file"});
  }
  file_ = Fd(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file_) {
    throw system_error(cat("cannot write ", partial_), errno,
                       {.remedy = "name a file in a directory you may write"});
  }
  if (::lseek(file_.get(), sizeof(Header), SEEK_SET) < 0) {  // the gap reads as zeros
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

void TokenWriter::write(std::span<const uint16_t> tokens) {
  if (tokens.size() > kMaxTokens - count_) {
    throw Error(ErrorCode::invalid_argument, cat("too many tokens for the file ", path_),
                {.cause = cat("its format counts at most ", kMaxTokens),
                 .remedy = "write several files, each from a part of the data"});
  }
  write_bytes(std::as_bytes(tokens));
  count_ += tokens.size();
}

void TokenWriter::finish() {
  const Header header = {kMagic, kVersion, static_cast<int32_t>(count_)};
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
