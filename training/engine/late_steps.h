// Steps in which ranks do not wait for each other: what became of them all ranks learn after the
// last one.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "training/engine/replica.h"

namespace tutti::training {

// One rank has one of these for each stretch of steps. Construction and results() are collective.
class Replica::LateSteps {
 public:
  // The arguments are those of Replica::run(), and outlive it.
  LateSteps(Replica& replica, std::span<const StepBatches> steps, int64_t first,
            std::span<const double> rates);

  int64_t count() const { return std::ssize(steps_); }
  const StepBatches& batches(int64_t step) const { return steps_[at(step)]; }
  double rate(int64_t step) const { return rates_[at(step)]; }
  // Targets and samples of all ranks' batches of the step.
  const StepCounts& counts(int64_t step) const { return counts_[at(step)]; }

  // Leaves the gradients of these micro-batches of the step, and keeps their losses.
  void compute(int64_t step, const StepBatches& batches, const LossScales& scales);
  // Throws Error(invalid_argument) where losses or gradients are not finite.
  void check(int64_t step) const;
  // Each of `more` becomes the sum of all ranks'.
  std::vector<StepResult> results(std::span<double> more);
  Error diverged(int64_t step, const std::string& what) const {
    return training::diverged(first_ + step, what, rate(step));
  }

 private:
  static size_t at(int64_t step) { return static_cast<size_t>(step); }

  Replica& replica_;
  std::span<const StepBatches> steps_;
  int64_t first_;
  std::span<const double> rates_;
  std::vector<StepCounts> counts_;
  std::vector<StepGradients::LossSums> losses_;
  std::vector<std::optional<std::chrono::steady_clock::time_point>> ended_;
};

}  // namespace tutti::training
