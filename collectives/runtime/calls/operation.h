// One call on one rank: its compiled call, its buffers and its state. A prepared call is an
// Operation that is never queued; each start copies its first five members into another one.
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
#include "collectives/runtime/calls/active_calls.h"
#include "collectives/runtime/calls/compiled_call.h"
#include "collectives/runtime/calls/encoded_call.h"

namespace tutti::internal {

struct Operation;
// Calls that must complete before another one starts; null: none.
using Predecessors = std::unique_ptr<std::vector<std::shared_ptr<Operation>>>;

struct Operation {
  std::shared_ptr<const CompiledCall> compiled;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::chrono::nanoseconds timeout{0};  // 0: no deadline
  // The conversion of a call in another wire format, or of a receive that combines. `input` and
  // `output` are then its encoded buffers.
  std::shared_ptr<const EncodedCall> encoded;

  // Number of the call, from 1. Collectives are counted together, messages per peer and direction.
  uint32_t number = 0;
  Operation* previous = nullptr;  // neighbours in its queue (operation_queue.h)
  Operation* next = nullptr;
  Ticks begun = 0;    // 0: not recorded yet
  ActiveCall active;  // counts the call as in flight, unless it completed at once
  // The next four members are only for receives (point_to_point.h). `matched` is the call as
  // compiled for the received message, if it differs from `compiled`.
  std::shared_ptr<const CompiledCall> matched;
  MessageInfo received;
  uint64_t order = 0;    // position in the order of receive calls
  bool probes = false;   // true: completes when a message has arrived; does not consume it
  bool started = false;  // false while it waits for the calls ahead of it in its queue
  Predecessors after;    // other calls that must complete before it starts
  std::function<void(const Error*)> on_end;
  // True if a thread waits for it or has polled it, or if another call or a callback depends on it.
  std::atomic<bool> awaited{false};
  std::atomic<bool> done{true};  // true: complete, or not begun
  // Set to true by the thread that waited for the operation, as its last access to the operation.
  std::atomic<bool> left{false};
  std::atomic<bool> failed{false};  // true: it will never complete
  std::optional<Error> failure;     // the error with which it failed; written before `failed`

  // Resets the state of a planned operation before it is queued.
  void begin() {
    begun = 0;
    active.end();
    if (matched) matched.reset();
    started = false;
    awaited.store(false, std::memory_order_relaxed);
    done.store(false, std::memory_order_relaxed);
  }
  // Convert the buffers if `encoded` is set: encode() before the call runs, decode() on completion.
  void encode() const {
    if (encoded) encoded->encode();
  }
  void decode() {
    if (!encoded) return;
    encoded->decode();
    received.dtype = encoded->dtype();
    received.count = encoded->values_received();
  }
  // Returns the compiled call that runs.
  const CompiledCall& running() const { return matched ? *matched : *compiled; }
  bool point_to_point() const { return compiled->point_to_point(); }
  int peer() const { return compiled->peer; }  // peer rank or kAnySource (point-to-point only)
  bool timed_out() const {
    return timeout.count() != 0 && nanoseconds_between(begun, ticks()) > timeout.count();
  }
};

}  // namespace tutti::internal
