// Automatic events of the trace (trace.h): units' passes and buckets' communication.
#pragma once

#include <string>
#include <vector>

#include "training/core/trace.h"
#include "training/parallel/synchronizer.h"
#include "training/pipeline/runner.h"

namespace tutti::training {

// Forwards all calls to `inner`, and records each unit's computation: "h.3 forward", "h.3
// backward", and "h.3 weights" for a deferred backward_weight. The time of `inner`, for example for
// gathering parameters, is excluded.
class TracingHooks : public UnitHooks {
 public:
  // All three must outlive it.
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

// For Synchronizer::observe(): records each collective by name and bucket. The trace must outlive
// the observer.
Synchronizer::Observer record_collectives(Trace& trace);

}  // namespace tutti::training
