// One call under way on one rank.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/deadline.h"
#include "collectives/execution.h"

namespace tutti::internal {

struct Operation {
  Call call;
  Buffer result;       // what `avg` divides when the sum is there; no data: nothing to do
  int peer = -1;       // point-to-point: the other rank
  bool sends = false;  // point-to-point: which way
  Deadline deadline = Deadline::never();
  std::chrono::nanoseconds timeout{0};
  bool started = false;  // it runs; before, it waits for the calls ahead of it
  std::atomic<bool> done{false};
};

}  // namespace tutti::internal
