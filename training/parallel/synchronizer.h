// The step from a rank's own gradients to the next parameter values: ranks exchange gradients,
// values, or both. A step calls it in this order:
//
//   begin_step -> the hooks around each unit's forward and backward -> join -> finish_gradients
//              -> the optimizer updates owned values -> after_update
//
// DataParallel (data_parallel.h) sums gradients over ranks, and with ZeRO gathers values. Others
// leave gradients local, and average values now and then (averaging/).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/core/state.h"
#include "training/core/unit_hooks.h"

namespace tutti::training {

// One object per rank's share of a model. All calls are collective, in one order.
class Synchronizer : public UnitHooks {
 public:
  // Called before several steps that ranks take without waiting for each other.
  virtual void begin_stretch(int64_t steps) {}
  // Called before the first forward of a step. `passes`: by unit, number of times that its backward
  // runs, equal on all ranks; 0 for units on other pipeline stages. Zeroes the gradients.
  virtual void begin_step(const std::vector<int64_t>& passes) = 0;
  // Called before and after the other stage's part is added to the gradient of a parameter in
  // DataParallelOptions::joined.
  virtual void begin_join(int parameter) {}
  virtual void join(int parameter) {}
  // Blocks until the gradients of owned pieces are ready for the optimizer.
  virtual void finish_gradients() = 0;
  // True if gradients are now sums over all ranks, with the same norm on each: a rank's own
  // gradients must then be its part of the mean over all ranks' targets. If false, they are the
  // mean over the rank's own targets, weighted before finish_gradients() by the rank's share of all
  // targets. Each rank then has its own norm, clips by it, and continues with its own values and
  // optimizer state, which checkpoints keep for each rank; this requires stage 0.
  virtual bool sums_gradients() const { return true; }
  // If gradients are not summed: receives this rank's number of targets in the step, before
  // finish_gradients(). Returns true if it weights values by it when they are averaged: gradients
  // then stay the mean over the rank's own targets.
  virtual bool weights_values(int64_t targets) { return false; }

  // Called after the optimizer has updated owned values; not in a skipped step.
  virtual void after_update() { publish_values(); }
  // True if the optimizer's state must be zeroed after this update.
  virtual bool restarts_optimizer() const { return false; }
  // Distributes owned values to the other ranks that compute with them, after an update or after
  // they were initialized or loaded.
  virtual void publish_values() = 0;
  // Blocks until no communication is in flight: owned values may then be read and written.
  virtual void finish_values() {}

  // Shows state that it keeps from step to step. Not to be called during a step.
  virtual void visit_state(StateVisitor& visitor) {}
  // If gradients are not summed: true if a rank takes its own values from the state that was read
  // last; otherwise all ranks take the mean.
  virtual bool takes_own_values() const { return true; }
  // If gradients are not summed: the values to validate and save, in the order of owned pieces,
  // equal on all ranks. Empty: the mean of the ranks' values.
  virtual std::span<const float> shared_values() const { return {}; }

  // With a replayed record (SyncOptions::replay): the number of ranks from that step on, if known.
  virtual std::optional<int> recorded_ranks(int64_t first) { return std::nullopt; }
  // Aborts calls in flight on its own communicators, on all ranks. Thread-safe.
  virtual void abort(const std::string& reason) {}

  virtual int64_t bytes() const { return 0; }  // memory besides the storage
  // Time that this rank blocked for communication, since construction.
  virtual std::chrono::nanoseconds waited() const { return {}; }
  virtual double bytes_sent() const { return 0; }  // by this rank, since construction
  // Called for each bucket's communication: name, bucket, from, to.
  using Observer =
      std::function<void(const char* what, int bucket, std::chrono::steady_clock::time_point from,
                         std::chrono::steady_clock::time_point to)>;
  virtual void observe(const Observer& observer) {}
};

}  // namespace tutti::training
