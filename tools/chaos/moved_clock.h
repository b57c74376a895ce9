// A wall clock that jumps, for one command and all that it starts: libfaketime shows it to them.
// The clocks that count on, such as CLOCK_MONOTONIC, are left alone, as by a host whose time is
// set.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tutti::tool::chaos {

class MovedClock {
 public:
  // `file` is made, and goes with this. Throws Error(unsupported) where there is no libfaketime.
  explicit MovedClock(const std::string& file);
  ~MovedClock();
  MovedClock(const MovedClock&) = delete;
  MovedClock& operator=(const MovedClock&) = delete;

  // For the command.
  std::map<std::string, std::string> environment() const;
  // From now on the clock is so far from the true one.
  void show(int64_t seconds) const;

 private:
  const std::string library_;
  const std::string file_;
  // What libfaketime would make for each process, and leave there where one is killed.
  const std::string semaphore_;
  const std::string memory_;
};

// Throws as MovedClock does.
void require_clock_library();

}  // namespace tutti::tool::chaos
