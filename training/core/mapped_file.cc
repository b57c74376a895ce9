#include "training/core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace tutti::training {
namespace {

[[noreturn]] void refuse(const std::string& directory, size_t bytes, int error) {
  throw Error(
      ErrorCode::system,
      cat("cannot create a file of ", bytes, " bytes in ", directory, ": ",
          std::generic_category().message(error)),
      {.where = "--shard-files",
       .remedy = "use a directory with write permission, on a disk with enough free space"});
}

Fd nameless_file(const std::string& directory, size_t bytes) {
  std::string path = directory + "/tutti.XXXXXX";
  Fd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) refuse(directory, bytes, errno);
  ::unlink(path.c_str());
  return file;
}

}  // namespace

std::shared_ptr<float[]> map_floats(const std::string& directory, size_t count) {
  if (count == 0) return nullptr;
  const size_t bytes = count * sizeof(float);
  const Fd file = nameless_file(directory, bytes);
  // Reserve disk space: a write to a page without space would raise SIGBUS.
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    refuse(directory, bytes, error);
  }
  void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (pages == MAP_FAILED) refuse(directory, bytes, errno);
  return {static_cast<float*>(pages), [bytes](float* data) { ::munmap(data, bytes); }};
}

}  // namespace tutti::training
