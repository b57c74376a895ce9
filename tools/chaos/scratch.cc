#include "tools/chaos/scratch.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/text.h"

namespace tutti::tool::chaos {

namespace {

// Enters a new mount namespace, so that mounts vanish with this process however it ends. Returns
// false if that is not permitted.
bool leave_the_mounts_of_others() {
  static const bool left = ::unshare(CLONE_NEWNS) == 0 &&
                           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return left;
}

}  // namespace

Scratch::Scratch(uint64_t bytes) {
  path_ = std::filesystem::temp_directory_path() / "tutti-chaos-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) throw system_error(cat("mkdtemp ", path_), errno);
  if (bytes == 0) return;
  const std::string size = cat("size=", bytes);
  is_mounted_ =
      leave_the_mounts_of_others() && ::mount("none", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  if (is_mounted_) return;
  const int reason = errno;
  ::rmdir(path_.c_str());
  throw system_error("mount a file system of limited size", reason,
                     {.remedy = "run as root, or remove full from --faults"});
}

Scratch::~Scratch() {
  if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tutti::tool::chaos
