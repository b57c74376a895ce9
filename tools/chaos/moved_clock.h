// Makes the wall clock jump for one command and its descendants, by means of libfaketime. Monotonic
// clocks such as CLOCK_MONOTONIC do not change, as when a host's time is set.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tutti::tool::chaos {

class MovedClock {
 public:
  // Creates `file`, which the destructor removes. Throws Error(unsupported) if libfaketime is
  // missing.
  explicit MovedClock(const std::string& file);
  ~MovedClock();
  MovedClock(const MovedClock&) = delete;
  MovedClock& operator=(const MovedClock&) = delete;

  // Returns the environment variables that the command needs.
  std::map<std::string, std::string> environment() const;
  // Sets the offset of the clock from the true time, in seconds.
  void show(int64_t seconds) const;

 private:
  const std::string library_;
  const std::string file_;
  // Name that makes libfaketime use this object's semaphore: otherwise it would create a semaphore
  // per process and leave it behind if the process is killed.
  const std::string semaphore_;
  const std::string memory_;
};

// Throws Error(unsupported) if libfaketime is missing.
void require_clock_library();

}  // namespace tutti::tool::chaos
