// Waits for a condition until a deadline, however distant it is.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/deadline.h"

namespace tutti {

// Returns true once `holds()` is true, false if the deadline passes first. `lock` guards the state
// that holds() reads. Waits at most an hour at a time (Deadline::remaining()): wait_for() adds its
// duration to the current time, and a very long duration would overflow.
template <typename Holds>
bool wait_for_condition(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                        const Deadline& deadline, const Holds& holds) {
  while (!holds()) {
    if (deadline.passed()) return false;
    changed.wait_for(lock, deadline.remaining());
  }
  return true;
}

}  // namespace tutti
