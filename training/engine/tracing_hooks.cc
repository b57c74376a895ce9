#include "training/engine/tracing_hooks.h"

#include <chrono>

namespace tutti::training {

using TraceClock = std::chrono::steady_clock;

TracingHooks::TracingHooks(UnitHooks& inner, const Model& model, Trace& trace)
    : inner_(inner), trace_(trace) {
  for (const std::unique_ptr<Unit>& unit : model.units()) {
    forward_names_.push_back(unit->name() + " forward");
    backward_names_.push_back(unit->name() + " backward");
    weights_names_.push_back(unit->name() + " weights");
  }
}

void TracingHooks::before_forward(int unit) {
  inner_.before_forward(unit);
  start_ = TraceClock::now();
}

void TracingHooks::after_forward(int unit) {
  record(forward_names_[static_cast<size_t>(unit)]);
  inner_.after_forward(unit);
}

void TracingHooks::before_backward(int unit) {
  inner_.before_backward(unit);
  start_ = TraceClock::now();
}

void TracingHooks::after_backward(int unit) {
  record(backward_names_[static_cast<size_t>(unit)]);
  inner_.after_backward(unit);
}

void TracingHooks::before_weights(int unit) {
  inner_.before_weights(unit);
  in_weights_ = true;
  start_ = TraceClock::now();
}

void TracingHooks::after_weights(int unit) {
  if (in_weights_) record(weights_names_[static_cast<size_t>(unit)]);
  in_weights_ = false;
  inner_.after_weights(unit);
}

void TracingHooks::record(const std::string& name) {
  trace_.add({name, TraceCategory::compute, start_, TraceClock::now(), {}});
}

Synchronizer::Observer record_collectives(Trace& trace) {
  return [&trace](const char* what, int bucket, TraceClock::time_point from,
                  TraceClock::time_point to) {
    trace.add({what, TraceCategory::communication, from, to, {{"bucket", bucket}}});
  };
}

}  // namespace tutti::training
