// Records events in the trace (trace.h): units' forward and backward passes, and the communication
// of buckets.
#pragma once

#include <string>
#include <vector>

#include "training/core/trace.h"
#include "training/parallel/synchronizer.h"
#include "training/pipeline/runner.h"

namespace tutti::training {

// Forwards all calls to `inner`, and records each unit's computation: "h.3 forward", "h.3
// backward", and "h.3 weights" for a deferred backward_weight. The time in `inner`, for example for
// gathering parameters, is not part of these events.
class TracingHooks : public UnitHooks {
 public:
  // Creates the hooks; all three arguments must outlive them.
  TracingHooks(UnitHooks& inner, const Model& model, Trace& trace);

  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;
  void before_weights(int unit) override;
  void after_weights(int unit) override;

 private:
  void record(const std::string& name);

  UnitHooks& inner_;
  Trace& trace_;
  std::vector<std::string> forward_names_;
  std::vector<std::string> backward_names_;
  std::vector<std::string> weights_names_;
  bool in_weights_ = false;
  TraceEvent::Time start_;
};

// Returns an observer for Synchronizer::observe() that records each collective by name and bucket.
// The trace must outlive it.
Synchronizer::Observer record_collectives(Trace& trace);

}  // namespace tutti::training
