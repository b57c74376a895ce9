#include "training/engine/late_steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/text.h"

namespace tutti::training {

using Clock = std::chrono::steady_clock;

Replica::LateSteps::LateSteps(Replica& replica, std::span<const StepBatches> steps, int64_t first,
                              std::span<const double> rates)
    : replica_(replica),
      steps_(steps),
      first_(first),
      rates_(rates),
      losses_(steps.size()),
      ended_(steps.size()) {
  const Clock::time_point from = Clock::now();
  replica.mean_.reset();
  replica.gradients_.count(steps);
  counts_ = replica.gradients_.all_counts();
  replica.met_ += Clock::now() - from;
}

void Replica::LateSteps::compute(int64_t step, const StepBatches& batches,
                                 const LossScales& scales) {
  StepGradients& gradients = replica_.gradients_;
  replica_.begin_gradients(gradients.passes(gradients.plan(batches.passes)));
  const Clock::time_point began = Clock::now();
  gradients.run(batches, scales);
  replica_.be_slow(began);
  gradients.add_losses(losses_[at(step)]);
  ended_[at(step)] = Clock::now();
}

void Replica::LateSteps::check(int64_t step) const {
  const StepFailure trouble = replica_.trouble();
  if (trouble.kind == StepFailure::none) return;
  std::vector<StepFailure> troubles(static_cast<size_t>(replica_.world().size()));
  troubles[static_cast<size_t>(replica_.world().rank())] = trouble;
  throw diverged(step, replica_.describe(troubles));
}

std::vector<StepResult> Replica::LateSteps::results(std::span<double> more) {
  std::vector<double> sums(1, 0);
  for (const StepBatches& step : steps_) sums[0] += step.sign && step.sign() ? 1 : 0;
  sums.insert(sums.end(), more.begin(), more.end());
  const Clock::time_point from = Clock::now();
  const std::vector<StepLosses> losses = replica_.gradients_.share(counts_, losses_, sums);
  replica_.met_ += Clock::now() - from;
  std::copy(sums.begin() + 1, sums.end(), more.begin());
  std::vector<StepResult> results;
  std::optional<Clock::time_point> ended;
  for (size_t step = 0; step < losses.size(); ++step) {
    StepResult& result = results.emplace_back(StepResult{losses[step]});
    result.signs = static_cast<int>(sums[0]);
    if (ended_[step]) ended = std::max(ended.value_or(*ended_[step]), *ended_[step]);
    result.ended = ended;
  }
  return results;
}

// Runs steps of ranks whose values differ: each rank has its own norm, and exchanges values by its
// synchronizer's rule. All exchanges are complete on return.
std::vector<StepResult> Replica::run_separately(std::span<const StepBatches> steps, int64_t first,
                                                std::span<const double> learning_rates) {
  LateSteps late(*this, steps, first, learning_rates);
  synchronizer_->begin_stretch(late.count());
  std::vector<double> norms;
  for (int64_t step = 0; step < late.count(); ++step) {
    const StepCounts own = gradients_.own_counts(late.batches(step));
    late.compute(step, late.batches(step), own.scales(1));
    join_tied_gradients();
    weigh_own_gradients(own, late.counts(step));
    late.check(step);
    synchronizer_->finish_gradients();
    norms.push_back(update(late.rate(step)));
    if (!std::isfinite(norms.back())) throw late.diverged(step, "the gradients' norm");
  }
  synchronizer_->finish_values();
  std::vector<StepResult> results = late.results({});
  for (size_t step = 0; step < results.size(); ++step) results[step].gradient_norm = norms[step];
  return results;
}

}  // namespace tutti::training
