#include "tools/chaos/moved_clock.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace tutti::tool::chaos {

namespace {

// Finds the multi-threaded version of libfaketime. Distributions install it in a separate folder,
// on Debian below the folder of the architecture.
std::string find_library() {
  constexpr const char* kName = "faketime/libfaketimeMT.so.1";
  std::error_code none;  // ignored, because these folders need not exist
  for (const std::filesystem::path folder : {"/usr/lib", "/usr/lib64", "/usr/local/lib"}) {
    if (exists(folder / kName, none)) return folder / kName;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      if (exists(entry.path() / kName, none)) return entry.path() / kName;
    }
  }
  throw Error(
      ErrorCode::unsupported, "faults of class clock require libfaketime, which is not installed",
      {.remedy =
           "install it (Debian: apt-get install libfaketime), or remove clock from --faults"});
}

}  // namespace

MovedClock::MovedClock(const std::string& file)
    : library_(find_library()),
      file_(file),
      semaphore_(cat("/tutti-clock-semaphore-", ::getpid())),
      memory_(cat("/tutti-clock-memory-", ::getpid())) {
  constexpr off_t kMoreThanItUses = 4096;
  show(0);
  sem_t* const semaphore = ::sem_open(semaphore_.c_str(), O_CREAT, 0600, 1);
  const Fd memory(::shm_open(memory_.c_str(), O_CREAT | O_RDWR, 0600));
  if (semaphore == SEM_FAILED || !memory || ::ftruncate(memory.get(), kMoreThanItUses) != 0) {
    throw system_error("create the shared memory of libfaketime", errno);
  }
  ::sem_close(semaphore);
}

MovedClock::~MovedClock() {
  ::sem_unlink(semaphore_.c_str());
  ::shm_unlink(memory_.c_str());
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

std::map<std::string, std::string> MovedClock::environment() const {
  return {{"LD_PRELOAD", library_},
          {"FAKETIME_TIMESTAMP_FILE", file_},
          {"FAKETIME_SHARED", cat(semaphore_, " ", memory_)},
          {"FAKETIME_NO_CACHE", "1"},
          {"FAKETIME_DONT_FAKE_MONOTONIC", "1"}};
}

// Replaces the file atomically.
void MovedClock::show(int64_t seconds) const {
  const std::string next = file_ + ".next";
  std::ofstream(next) << (seconds < 0 ? "" : "+") << seconds << '\n';
  std::filesystem::rename(next, file_);
}

void require_clock_library() { find_library(); }

}  // namespace tutti::tool::chaos
