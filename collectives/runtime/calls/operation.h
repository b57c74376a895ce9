// One call on one rank: what is planned of it, and what is under way.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/ticks.h"
#include "collectives/request.h"
#include "collectives/runtime/calls/compiled_call.h"
#include "collectives/runtime/calls/execution.h"
#include "collectives/runtime/engine.h"

namespace tutti::internal {

struct Operation;
// The calls that another one follows; null: none.
using Predecessors = std::unique_ptr<std::vector<std::shared_ptr<Operation>>>;

// All of a call but its number and its time.
struct PreparedCall {
  std::shared_ptr<const CompiledCall> compiled;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::chrono::nanoseconds timeout{0};  // 0: none
};

struct Operation {
  Operation* previous = nullptr;  // in its queue (operation_queue.h)
  Operation* next = nullptr;
  Call call;
  std::shared_ptr<const CompiledCall> compiled;  // call's, kept alive
  std::chrono::nanoseconds timeout{0};
  Ticks begun = 0;    // 0: not recorded yet
  ActiveCall active;  // unless it was over before others had to know of it
  // Of receives (point_to_point.h):
  std::shared_ptr<const CompiledCall> matched;  // the message's, where it is not what was asked for
  MessageInfo received;
  uint64_t order = 0;    // in which they were called
  bool probes = false;   // ends when there is a message, and leaves it
  bool started = false;  // it runs; before, it waits for the calls ahead of it,
  Predecessors after;    // and for these
  std::function<void(const Error*)> on_end;
  std::atomic<bool> awaited{false};  // a thread waits for it, or has asked how it stands
  std::atomic<bool> done{false};
  std::atomic<bool> failed{false};  // it will never be done:
  std::optional<Error> failure;     // why; written before

  bool point_to_point() const { return compiled->point_to_point(); }
  int peer() const { return compiled->peer; }  // point-to-point: the other rank, or kAnySource
  bool timed_out() const {
    return timeout.count() != 0 && nanoseconds_between(begun, ticks()) > timeout.count();
  }
};

}  // namespace tutti::internal
