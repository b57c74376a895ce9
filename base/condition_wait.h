// Waiting for a condition up to a deadline, however far away that is.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/deadline.h"

namespace tutti {

// Returns whether `holds()` is true; false where the deadline passes first. The lock guards what
// holds() reads. (std::condition_variable::wait_for() adds the time to now, which overflows.)
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
