#include "training/checkpoint/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tutti::training {
namespace {

// Bytes that are hashed and passed to the system at a time, while they are in a core's cache.
constexpr size_t kSlice = size_t{1} << 19;
// Writeback to the disk starts after this many bytes, before the file is complete, so that fsync()
// has little left to do.
constexpr uint64_t kToDisk = uint64_t{8} << 20;

std::string remedy_for(int errno_value) {
  switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
      return "free some space, or use a directory on another file system";
    case EFBIG:
      return "raise the limit on the size of files (ulimit -f)";
    case EACCES:
    case EPERM:
    case EROFS:
      return "use a directory with write permission";
    case ENOENT:
      return "check the path; on several hosts it must be on a file system shared by all of them";
    default:
      return "";
  }
}

}  // namespace

Error file_error(const char* what, const std::string& path, int errno_value) {
  return system_error(cat(what, ' ', path), errno_value, {.remedy = remedy_for(errno_value)});
}

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // Non-blocking, so that opening a pipe does not wait for a writer.
  const Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!fd || ::fstat(fd.get(), &status) != 0) throw system_error(cat("cannot read ", path_), errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::invalid_argument, cat("cannot read ", path_, ": it is not a file"));
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (memory == MAP_FAILED) throw system_error(cat("cannot map ", path_), errno);
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!fd_) fail("cannot create", errno);
  buffer_.reserve(kSlice);
}

OutputFile::~OutputFile() {
  if (fd_ && !finished_) ::unlink(path_.c_str());
}

void OutputFile::fail(const char* what, int errno_value) const {
  throw file_error(what, path_, errno_value);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    const std::span slice = bytes.first(std::min(bytes.size(), kSlice));
    checksum_.add(slice);
    part_.add(slice);
    put(slice);
    bytes = bytes.subspan(slice.size());
  }
}

void OutputFile::put(std::span<const std::byte> slice) {
  if (buffer_.size() + slice.size() > kSlice) flush();
  if (slice.size() == kSlice) return write_out(slice);
  buffer_.insert(buffer_.end(), slice.begin(), slice.end());
}

void OutputFile::flush() {
  write_out(buffer_);
  buffer_.clear();
}

void OutputFile::write_out(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    written_ += static_cast<uint64_t>(written);
  }
  if (written_ - to_disk_ < kToDisk) return;
  // Some file systems do not support this; fsync() then writes everything.
  ::sync_file_range(fd_.get(), static_cast<off64_t>(to_disk_),
                    static_cast<off64_t>(written_ - to_disk_), SYNC_FILE_RANGE_WRITE);
  to_disk_ = written_;
}

void OutputFile::finish() {
  flush();
  if (::fsync(fd_.get()) != 0) fail("cannot write to the disk:", errno);
  // Network file systems may report a full disk only on close.
  if (::close(fd_.release()) != 0) {
    const int reason = errno;
    ::unlink(path_.c_str());
    fail("cannot close", reason);
  }
  finished_ = true;
}

void sync_directory(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems do not support fsync of directories.
  if (!fd || (::fsync(fd.get()) != 0 && errno != EINVAL)) {
    throw file_error("cannot write to the disk:", path, errno);
  }
}

void replace_file(const std::string& path, std::string_view text) {
  const std::string fresh = path + ".tmp";
  OutputFile file(fresh);
  file.write(text);
  file.finish();
  if (::rename(fresh.c_str(), path.c_str()) != 0) throw file_error("cannot replace", path, errno);
}

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void remove_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) log(LogLevel::warning, cat("cannot remove ", path, ": ", error.message()));
}

}  // namespace tutti::training
