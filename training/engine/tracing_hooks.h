// What goes into the trace (trace.h) by itself: units' passes and buckets' communication.
#pragma once

#include <string>
#include <vector>

#include "training/core/trace.h"
#include "training/parallel/synchronizer.h"
#include "training/pipeline/runner.h"

namespace tutti::training {

// Passes everything on to `inner`, and records each unit's computing: "h.3 forward", "h.3
// backward", and "h.3 weights" where backward_weight was put off. What `inner` does before and
// after, waiting for parameters say, is not counted.
class TracingHooks : public UnitHooks {
 public:
  // All three outlive it.
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

// For Synchronizer::observe(): records each collective, by name and with its bucket. The trace
// outlives the observer.
Synchronizer::Observer record_collectives(Trace& trace);

}  // namespace tutti::training
