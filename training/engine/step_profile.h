// Measures where a rank's steps spend their time: by unit and phase, and within these by kernel.
//
//   step | exchange | wte forward | other | h.0 forward | ... | h.0 backward | exchange | update |
//                     gemm nt, layer_norm, ...                              adamw
//
// Parts follow each other without gaps, so their times add up to the step's time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/core/model.h"
#include "training/core/unit_hooks.h"
#include "training/kernels/observer.h"

namespace tutti::training {

// Totals over the calls of all kernels of one name.
struct KernelTotals {
  double calls = 0;
  double seconds = 0;
  double operations = 0;  // operations, as KernelCall counts them
  double bytes = 0;

  KernelTotals& operator+=(const KernelTotals& other);
};
using KernelTimes = std::map<std::string, KernelTotals>;  // key: name of the kernel

// A part of a step: one phase of one unit. The phases are forward, backward, weights (a deferred
// backward_weight) and exchange, which is work around the unit such as checks and sums of
// gradients, gathers of values and waiting for other ranks. Parts of the whole model have no unit:
// update, exchange, and other.
struct ProfilePart {
  std::string unit;  // name of the unit; empty: the whole model
  std::string phase;
  double seconds = 0;
  KernelTimes kernels;
};

// The measured times: means over `steps` steps.
struct StepProfile {
  int64_t steps = 0;
  // number of warm-up steps that are not counted, because they touch memory for the first time
  int64_t skipped = 0;
  double seconds = 0;  // seconds per step: the sum over `parts`
  std::vector<ProfilePart> parts;

  KernelTimes kernels() const;  // Returns the totals of all parts together.
};

// Measures one rank's steps. One thread at a time may use it.
class StepProfiler : public KernelObserver {
 public:
  enum class Phase { forward, backward, weights, exchange, update, other };
  static constexpr int kWholeModel = -1;
  struct Place {
    int unit = kWholeModel;
    Phase phase = Phase::other;
    auto operator<=>(const Place&) const = default;
  };

  // Measure the time from begin() to end(). `steps`: number of steps since begin(). The
  // first begin() that finds at least two measured steps discards them, as warm-up.
  void begin();
  void end(int64_t steps);
  // Ends the current part of the step and begins the part `place`. Returns the previous part. Has
  // no effect between steps.
  Place enter(const Place& place);
  void on_kernel(const KernelCall& call) override;

  StepProfile report(const Model& model) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Part {
    std::chrono::nanoseconds time{0};
    std::map<std::string_view, KernelTotals> kernels;
  };

  std::map<Place, Part> parts_;
  Place at_;
  Clock::time_point since_;
  bool active_ = false;
  bool is_warm_ = false;
  int64_t steps_ = 0;
  int64_t skipped_ = 0;
};

// Attributes the time from its construction to its destruction to a part of the whole model. Has no
// effect if the profiler is null.
class ProfileSpan {
 public:
  ProfileSpan(StepProfiler* profiler, StepProfiler::Phase phase) : profiler_(profiler) {
    if (profiler_ != nullptr) before_ = profiler_->enter({StepProfiler::kWholeModel, phase});
  }
  ~ProfileSpan() {
    if (profiler_ != nullptr) profiler_->enter(before_);
  }
  ProfileSpan(const ProfileSpan&) = delete;
  ProfileSpan& operator=(const ProfileSpan&) = delete;

 private:
  StepProfiler* profiler_;
  StepProfiler::Place before_;
};

// Forwards all calls to `inner`, and counts the time in these calls as the unit's exchange.
class ProfilingHooks : public UnitHooks {
 public:
  // Creates the hooks; `inner` and `profiler` must outlive them.
  ProfilingHooks(UnitHooks& inner, StepProfiler& profiler) : inner_(inner), profiler_(profiler) {}

  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;
  void before_weights(int unit) override;
  void after_weights(int unit) override;

 private:
  using Phase = StepProfiler::Phase;
  void before(int unit, Phase phase, void (UnitHooks::*hook)(int));
  void after(int unit, void (UnitHooks::*hook)(int));

  UnitHooks& inner_;
  StepProfiler& profiler_;
};

}  // namespace tutti::training
