// One call on one rank: its compiled call, its buffers, and how it stands. A prepared call is an
// Operation that is never queued: each start copies the first five members into another one.
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
// The calls that another one follows; null: none.
using Predecessors = std::unique_ptr<std::vector<std::shared_ptr<Operation>>>;

struct Operation {
  std::shared_ptr<const CompiledCall> compiled;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::chrono::nanoseconds timeout{0};  // 0: none
  // Where its elements travel in another format: `input` and `output` are what travels.
  std::shared_ptr<const EncodedCall> encoded;

  uint32_t number = 0;            // collectives: from 1; messages: by peer and direction
  Operation* previous = nullptr;  // in its queue (operation_queue.h)
  Operation* next = nullptr;
  Ticks begun = 0;    // 0: not recorded yet
  ActiveCall active;  // unless it was over before others had to know of it
  // Of receives (point_to_point.h):
  std::shared_ptr<const CompiledCall> matched;  // the message's, where it is not `compiled`
  MessageInfo received;
  uint64_t order = 0;    // in which they were called
  bool probes = false;   // ends when there is a message, and leaves it
  bool started = false;  // it runs; before, it waits for the calls ahead of it,
  Predecessors after;    // and for these
  std::function<void(const Error*)> on_end;
  std::atomic<bool> awaited{false};  // a thread waits for it, or has asked how it stands
  std::atomic<bool> done{true};      // nothing of it is left to do; also before it begins
  std::atomic<bool> left{false};     // stored by who has waited for it, last of all
  std::atomic<bool> failed{false};   // it will never be done:
  std::optional<Error> failure;      // why; written before

  // It has been planned, and is about to be queued.
  void begin() {
    begun = 0;
    active.end();
    if (matched) matched.reset();
    started = false;
    awaited.store(false, std::memory_order_relaxed);
    done.store(false, std::memory_order_relaxed);
  }
  // Before it runs, and when it is complete.
  void encode() const {
    if (encoded) encoded->encode();
  }
  void decode() {
    if (!encoded) return;
    encoded->decode();
    received.dtype = encoded->dtype();
    received.count = encoded->values_received();
  }
  // The call that runs.
  const CompiledCall& running() const { return matched ? *matched : *compiled; }
  bool point_to_point() const { return compiled->point_to_point(); }
  int peer() const { return compiled->peer; }  // point-to-point: the other rank, or kAnySource
  bool timed_out() const {
    return timeout.count() != 0 && nanoseconds_between(begun, ticks()) > timeout.count();
  }
};

}  // namespace tutti::internal
