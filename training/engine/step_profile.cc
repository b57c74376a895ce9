#include "training/engine/step_profile.h"

#include <memory>

namespace tutti::training {
namespace {

constexpr int64_t kWarmUpSteps = 2;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

const char* name_of(StepProfiler::Phase phase) {
  switch (phase) {
    case StepProfiler::Phase::forward:
      return "forward";
    case StepProfiler::Phase::backward:
      return "backward";
    case StepProfiler::Phase::weights:
      return "weights";
    case StepProfiler::Phase::exchange:
      return "exchange";
    case StepProfiler::Phase::update:
      return "update";
    case StepProfiler::Phase::other:
      break;
  }
  return "other";
}

KernelTotals mean_of(const KernelTotals& all, double steps) {
  return {all.calls / steps, all.seconds / steps, all.operations / steps, all.bytes / steps};
}

}  // namespace

KernelTotals& KernelTotals::operator+=(const KernelTotals& other) {
  calls += other.calls;
  seconds += other.seconds;
  operations += other.operations;
  bytes += other.bytes;
  return *this;
}

KernelTimes StepProfile::kernels() const {
  KernelTimes all;
  for (const ProfilePart& part : parts) {
    for (const auto& [name, totals] : part.kernels) all[name] += totals;
  }
  return all;
}

void StepProfiler::begin() {
  if (!is_warm_ && steps_ >= kWarmUpSteps) {
    skipped_ = std::exchange(steps_, 0);
    parts_.clear();
    is_warm_ = true;
  }
  at_ = {};
  active_ = true;
  since_ = Clock::now();
}

void StepProfiler::end(int64_t steps) {
  enter({});
  active_ = false;
  steps_ += steps;
}

StepProfiler::Place StepProfiler::enter(const Place& place) {
  if (!active_) return place;
  const Clock::time_point now = Clock::now();
  parts_[at_].time += now - since_;
  since_ = now;
  return std::exchange(at_, place);
}

void StepProfiler::on_kernel(const KernelCall& call) {
  if (!active_) return;
  parts_[at_].kernels[call.name] += {1, seconds(call.time), call.operations, call.bytes};
}

// Returns the profile. Its parts are ordered by unit; the parts of the whole model are last.
StepProfile StepProfiler::report(const Model& model) const {
  StepProfile profile{.steps = steps_, .skipped = skipped_};
  if (steps_ == 0) return profile;
  const auto steps = static_cast<double>(steps_);
  const auto add = [&](const Place& place, const Part& part) {
    ProfilePart& row = profile.parts.emplace_back();
    if (place.unit != kWholeModel)
      row.unit = model.units()[static_cast<size_t>(place.unit)]->name();
    row.phase = name_of(place.phase);
    row.seconds = seconds(part.time) / steps;
    profile.seconds += row.seconds;
    for (const auto& [name, totals] : part.kernels) {
      row.kernels.emplace(name, mean_of(totals, steps));
    }
  };
  for (const auto& [place, part] : parts_) {
    if (place.unit != kWholeModel) add(place, part);
  }
  for (const auto& [place, part] : parts_) {
    if (place.unit == kWholeModel) add(place, part);
  }
  return profile;
}

void ProfilingHooks::before(int unit, Phase phase, void (UnitHooks::*hook)(int)) {
  profiler_.enter({unit, Phase::exchange});
  (inner_.*hook)(unit);
  profiler_.enter({unit, phase});
}

void ProfilingHooks::after(int unit, void (UnitHooks::*hook)(int)) {
  profiler_.enter({unit, Phase::exchange});
  (inner_.*hook)(unit);
  profiler_.enter({});
}

void ProfilingHooks::before_forward(int unit) {
  before(unit, Phase::forward, &UnitHooks::before_forward);
}
void ProfilingHooks::after_forward(int unit) { after(unit, &UnitHooks::after_forward); }
void ProfilingHooks::before_backward(int unit) {
  before(unit, Phase::backward, &UnitHooks::before_backward);
}
void ProfilingHooks::after_backward(int unit) { after(unit, &UnitHooks::after_backward); }
void ProfilingHooks::before_weights(int unit) {
  before(unit, Phase::weights, &UnitHooks::before_weights);
}
void ProfilingHooks::after_weights(int unit) { after(unit, &UnitHooks::after_weights); }

}  // namespace tutti::training
