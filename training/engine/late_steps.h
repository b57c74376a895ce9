// Runs steps in which ranks do not wait for each other; the ranks exchange the steps' losses only
// after the last step.
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

// A sequence of such steps on one rank. The constructor and results() are collective.
class Replica::LateSteps {
 public:
  // Starts the steps. Takes the arguments of Replica::run(), which must outlive the object.
  LateSteps(Replica& replica, std::span<const StepBatches> steps, int64_t first,
            std::span<const double> rates);

  int64_t count() const { return std::ssize(steps_); }
  const StepBatches& batches(int64_t step) const { return steps_[at(step)]; }
  double rate(int64_t step) const { return rates_[at(step)]; }
  // Returns the numbers of targets and samples of all ranks in the step.
  const StepCounts& counts(int64_t step) const { return counts_[at(step)]; }

  // Computes the gradients of `batches`, which belong to step `step`, and adds their losses to the
  // step's losses.
  void compute(int64_t step, const StepBatches& batches, const LossScales& scales);
  // Throws Error(invalid_argument) if losses or gradients are not finite.
  void check(int64_t step) const;
  // Collective. Sums the losses over ranks and returns the steps' results. Each element of `more`
  // becomes its sum over all ranks.
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
