// One call on one rank: what is planned of it, and what is under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "collectives/algorithm.h"
#include "collectives/execution.h"
#include "collectives/reduction.h"

namespace tutti::internal {

// All of a call but its number and its time.
struct PreparedCall {
  Call call;
  const Algorithm* algorithm = nullptr;  // null for point-to-point calls, and alone
  Reduction op;
  Buffer result;             // what `avg` divides when the sum is there; no data: nothing to do
  int divisor = 1;           // by how many ranks
  uint64_t input_count = 0;  // elements of the input, for premul_sum
  int peer = -1;             // point-to-point: the other rank
  bool sends = false;        // point-to-point: which way
  std::chrono::nanoseconds timeout{0};
};

struct Operation {
  Call call;
  std::shared_ptr<const UserOp> function;  // kept alive
  std::vector<std::byte> scaled;           // the input times its factor (premul_sum)
  Buffer result;
  int divisor = 1;
  int peer = -1;
  bool sends = false;
  Deadline deadline = Deadline::never();
  std::chrono::nanoseconds timeout{0};
  bool started = false;  // it runs; before, it waits for the calls ahead of it
  std::atomic<bool> done{false};
};

}  // namespace tutti::internal
