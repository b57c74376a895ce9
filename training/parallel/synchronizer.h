// What stands between a rank's own gradients and the parameter values that it goes on with: when
// ranks tell each other of gradients, of values, or of both. A step calls it in this order:
//
//   begin_step -> the hooks around each unit's forward and backward -> join -> finish_gradients
//              -> the optimizer updates owned values -> after_update
//
// DataParallel (data_parallel.h) sums gradients over ranks, and with ZeRO gathers values. Another
// may leave gradients as they are, and average values now and then (averaging/).
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

// One of these for a rank's share of one model. Each call is made by all ranks, in one order.
class Synchronizer : public UnitHooks {
 public:
  // Before several steps that ranks take without waiting for each other.
  virtual void begin_stretch(int64_t steps) {}
  // Before the first forward of a step. By unit: how often its backward runs, the same number on
  // each rank; 0 for those that lie on other stages of a pipeline. Gradients are zero after it.
  virtual void begin_step(const std::vector<int64_t>& passes) = 0;
  // The gradient of a parameter of DataParallelOptions::joined is about to get the other stage's
  // part, and has got it.
  virtual void begin_join(int parameter) {}
  virtual void join(int parameter) {}
  // Returns when the gradients of owned pieces are what the optimizer is to take.
  virtual void finish_gradients() = 0;
  // Whether the gradients are now those of all ranks, with the same norm on each: then a rank's own
  // are its part of the mean over all ranks' targets. Else they are the mean over its own targets,
  // and then weighted by the part that these are of all. Each rank has its own norm, clips by it,
  // and goes on with its own values and optimizer's state, which checkpoints then keep of each
  // rank: in stage 0. Gradients are weighted before finish_gradients().
  virtual bool sums_gradients() const { return true; }
  // Where gradients are not summed: takes note of this rank's number of targets in the step, before
  // finish_gradients(). Returns true where it weights values by it when they are averaged: then the
  // gradients stay the mean over the rank's own targets.
  virtual bool weights_values(int64_t targets) { return false; }

  // The optimizer has updated owned values; not in a step that was left out.
  virtual void after_update() { publish_values(); }
  // Returns true where the optimizer's state is zeroed after this update.
  virtual bool restarts_optimizer() const { return false; }
  // Owned values were filled or loaded, or as above: whoever else computes with them is to have
  // them.
  virtual void publish_values() = 0;
  // Returns when nothing is under way: owned values may be read and written from then on.
  virtual void finish_values() {}

  // Shows what it keeps from step to step besides. Not in the middle of a step.
  virtual void visit_state(StateVisitor& visitor) {}
  // Where gradients are not summed: whether a rank takes the values of its own that the state which
  // was read last has; else all take their mean.
  virtual bool takes_own_values() const { return true; }
  // Where gradients are not summed: the values of the model that is validated and saved, in the
  // order of owned pieces, the same on all ranks. Empty: the mean of the ranks' values.
  virtual std::span<const float> shared_values() const { return {}; }

  // With a replayed record (SyncOptions::replay): how many ranks there were from that step on, if
  // it tells.
  virtual std::optional<int> recorded_ranks(int64_t first) { return std::nullopt; }
  // Ends calls in flight on communicators of its own, on all ranks; from any thread.
  virtual void abort(const std::string& reason) {}

  virtual int64_t bytes() const { return 0; }  // of memory that it holds besides the storage
  // Time that this rank's own work stood still for communication, since construction.
  virtual std::chrono::nanoseconds waited() const { return {}; }
  virtual double bytes_sent() const { return 0; }  // by this rank, since construction
  // Told of each bucket's communication: name, bucket, from, to.
  using Observer =
      std::function<void(const char* what, int bucket, std::chrono::steady_clock::time_point from,
                         std::chrono::steady_clock::time_point to)>;
  virtual void observe(const Observer& observer) {}
};

}  // namespace tutti::training
