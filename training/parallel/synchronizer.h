// Interface of synchronizers: they exchange gradients, values, or both between ranks, to get from a
// rank's own gradients to the next parameter values. A step calls a synchronizer in this order:
//
//   begin_step -> the hooks around each unit's forward and backward -> join -> finish_gradients
//              -> the optimizer updates owned values -> after_update
//
// DataParallel (data_parallel.h) sums gradients over ranks, and with ZeRO gathers values. Classes
// in averaging/ leave gradients local, and average values from time to time. ParameterServer
// (servers/) sends gradients to servers and receives values.
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

// A synchronizer for a rank's share of a model. All calls are collective, in the same order on all
// ranks.
class Synchronizer : public UnitHooks {
 public:
  // Called before `steps` steps that ranks take without waiting for each other.
  virtual void begin_stretch(int64_t steps) {}
  // Called before the first forward of a step. Zeroes the gradients. `passes`: for each unit, the
  // number of times that its backward runs, which is equal on all ranks; 0 for units on other
  // pipeline stages.
  virtual void begin_step(const std::vector<int64_t>& passes) = 0;
  // Called for a parameter in DataParallelOptions::joined, to whose gradient two pipeline stages
  // contribute: begin_join() before the other stage's contribution is added, join() afterwards.
  virtual void begin_join(int parameter) {}
  virtual void join(int parameter) {}
  // Blocks until the gradients of owned pieces are ready for the optimizer.
  virtual void finish_gradients() = 0;
  // Returns true if finish_gradients() sums gradients over all ranks. Each rank must then compute
  // its term of the mean over all ranks' targets. Returns false if ranks keep their own gradients:
  // each rank then computes the mean over its own targets and, before finish_gradients(),
  // multiplies it by its number of targets relative to the mean number of all ranks. In this case
  // each rank clips by its own norm and has its own values and optimizer state, which checkpoints
  // keep for each rank, and the ZeRO stage must be 0.
  virtual bool sums_gradients() const { return true; }
  // If gradients are not summed: called with this rank's number of targets in the step, before
  // finish_gradients(). Returns true if the synchronizer weights values by the number of targets
  // when it averages values; gradients must then stay the mean over the rank's own targets.
  virtual bool weights_values(int64_t targets) { return false; }

  // Called after the optimizer has updated owned values; not in a skipped step.
  virtual void after_update() { publish_values(); }
  // Returns true if the optimizer's state must be zeroed after this update.
  virtual bool restarts_optimizer() const { return false; }
  // Sends owned values to the other ranks that compute with them. Called after an update, and after
  // values were initialized or loaded.
  virtual void publish_values() = 0;
  // Blocks until no communication is in flight. Afterwards owned values may be read and written.
  virtual void finish_values() {}

  // Visits the state that the synchronizer keeps from step to step. Must not be called during a
  // step.
  virtual void visit_state(StateVisitor& visitor) {}
  // If gradients are not summed: returns true if a rank takes its own values from the state that
  // was read last, false if all ranks take the mean.
  virtual bool takes_own_values() const { return true; }
  // If gradients are not summed: returns the values to validate and save, in the order of owned
  // pieces, equal on all ranks. If empty, the mean of the ranks' values is used.
  virtual std::span<const float> shared_values() const { return {}; }

  // With a replayed record (SyncOptions::replay): returns the number of ranks in the recorded
  // stretch that begins with step `first`, if there is one.
  virtual std::optional<int> recorded_ranks(int64_t first) { return std::nullopt; }
  // Aborts communication in flight on the synchronizer's own communicators, on all ranks.
  // Thread-safe.
  virtual void abort(const std::string& reason) {}

  virtual int64_t bytes() const { return 0; }  // Returns the bytes of its own memory.
  // Returns the time for which this rank has blocked for communication since construction.
  virtual std::chrono::nanoseconds waited() const { return {}; }
  // Returns the bytes that this rank has sent since construction.
  virtual double bytes_sent() const { return 0; }
  // Function that is called for each bucket's communication with the communication's name, the
  // bucket, and the times of its start and end.
  using Observer =
      std::function<void(const char* what, int bucket, std::chrono::steady_clock::time_point from,
                         std::chrono::steady_clock::time_point to)>;
  virtual void observe(const Observer& observer) {}
};

}  // namespace tutti::training
