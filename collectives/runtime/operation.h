// One call on one rank: what is planned of it, and what is under way.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ticks.h"
#include "collectives/runtime/engine.h"
#include "collectives/runtime/execution.h"
#include "collectives/runtime/outline.h"

namespace tutti::internal {

// All of a call but its number and its time.
struct PreparedCall {
  std::shared_ptr<const Outline> outline;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::chrono::nanoseconds timeout{0};  // 0: never
};

struct Operation {
  Call call;
  std::shared_ptr<const Outline> outline;  // call's, kept alive
  std::vector<std::byte> scaled;           // the input times its factor (premul_sum)
  std::chrono::nanoseconds timeout{0};
  Ticks begun = 0;       // 0: not recorded yet
  ActiveCall active;     // unless it was over before others had to know of it
  bool started = false;  // it runs; before, it waits for the calls ahead of it
  std::atomic<bool> done{false};

  int peer() const { return outline->peer; }  // point-to-point: the other rank; else negative
  bool timed_out() const {
    return timeout.count() != 0 && nanoseconds_between(begun, ticks()) > timeout.count();
  }
};

}  // namespace tutti::internal
