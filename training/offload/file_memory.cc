#include "training/offload/file_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

// Constants of linux/mman.h (Linux 5.14) that older C libraries lack.
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;

size_t page_size() {
  static const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

size_t round_down(size_t bytes) { return bytes / page_size() * page_size(); }
size_t round_up(size_t bytes) { return round_down(bytes + page_size() - 1); }

std::string words_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void refuse(const std::string& directory, size_t bytes, int error) {
  throw Error(
      ErrorCode::system,
      cat("cannot create a file of ", bytes, " bytes in ", directory, ": ", words_of(error)),
      {.where = "--offload-dir",
       .remedy = "use a writable directory on a disk with enough free space"});
}

[[noreturn]] void fail(const std::string& directory, const char* what, int error) {
  throw Error(
      ErrorCode::system,
      cat("offloaded memory in a file of ", directory, " cannot be ", what, ": ", words_of(error)),
      {.where = "--offload-dir",
       .cause = "the disk has failed or was removed",
       .remedy = "resume from the last checkpoint with a directory on another disk"});
}

Fd nameless_file(const std::string& directory, size_t bytes) {
  std::string path = directory + "/tutti.XXXXXX";
  Fd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) refuse(directory, bytes, errno);
  ::unlink(path.c_str());
  return file;
}

}  // namespace

FileMemory::FileMemory(const std::string& directory, size_t bytes)
    : directory_(directory),
      file_(nameless_file(directory, bytes)),
      size_(bytes),
      mapped_(round_up(std::max<size_t>(bytes, 1))) {
  struct ::statvfs disk {};
  if (::fstatvfs(file_.get(), &disk) == 0 && disk.f_bavail * disk.f_frsize < mapped_) {
    refuse(directory, bytes, ENOSPC);  // before the file fills a disk that other programs use
  }
  // Allocates the blocks now, because a page that is written when the disk is full raises SIGBUS.
  if (const int error = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(mapped_));
      error != 0) {
    refuse(directory, bytes, error);
  }
  void* const pages = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (pages == MAP_FAILED) refuse(directory, bytes, errno);
  data_ = static_cast<std::byte*>(pages);
}

FileMemory::~FileMemory() { ::munmap(data_, mapped_); }

bool FileMemory::contains(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= data_ && at < data_ + size_;
}

FileMemory::Pages FileMemory::pages_of(Range range, bool whole_last) const {
  const auto first = static_cast<size_t>(range.data() - data_);
  const size_t end = first + range.size();
  const size_t begin = round_down(first);
  return {begin, (whole_last || end == size_ ? round_up(end) : round_down(end)) - begin};
}

void FileMemory::start_reading(Range range) const {
  const Pages pages = pages_of(range, true);
  ::madvise(data_ + pages.first, pages.bytes, MADV_WILLNEED);
}

void FileMemory::load(Range range, bool writes) const {
  const Pages pages = pages_of(range, true);
  int failed = 0;
  do {
    failed = ::madvise(data_ + pages.first, pages.bytes, writes ? kPopulateWrite : kPopulateRead);
  } while (failed != 0 && (errno == EINTR || errno == EAGAIN));
  // A kernel that does not support this advice reads the pages when they are touched.
  if (failed != 0 && errno != EINVAL) fail(directory_, "read", errno == EFAULT ? EIO : errno);
}

void FileMemory::store(Range bytes, std::byte* to) const {
  auto at = static_cast<off_t>(to - data_);
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(directory_, "written", written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(written));
    at += written;
  }
}

void FileMemory::write_back(Pages pages, unsigned flags) const {
  const int failed = ::sync_file_range(file_.get(), static_cast<off_t>(pages.first),
                                       static_cast<off_t>(pages.bytes), flags);
  if (failed != 0) fail(directory_, "written", errno);
}

void FileMemory::start_writing(Range range) const {
  const Pages pages = pages_of(range, false);
  if (pages.bytes > 0) write_back(pages, SYNC_FILE_RANGE_WRITE);
}

void FileMemory::evict(Range range) const {
  const Pages pages = pages_of(range, false);
  if (pages.bytes == 0) return;
  write_back(pages,
             SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  // Unmaps the pages first, because the page cache does not release pages that are mapped.
  ::madvise(data_ + pages.first, pages.bytes, MADV_DONTNEED);
  ::posix_fadvise(file_.get(), static_cast<off_t>(pages.first), static_cast<off_t>(pages.bytes),
                  POSIX_FADV_DONTNEED);
}

}  // namespace tutti::training
