// Runs steps of schedules that update weights while micro-batches are in flight (PipeDream,
// PipeDream-2BW). Each stage updates separately; stages exchange results only after the last step.

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/engine/replica.h"
#include "training/optimizers/exact_sum.h"
#include "training/parallel/rank_reducer.h"

namespace tutti::training {

// Called when the gradients of an update's micro-batches are complete on this stage. Returns the
// sum of squares of this rank's part.
ExactSum Replica::unflushed_update(double learning_rate) {
  const TraceSpan span(trace_, "optimizer", TraceCategory::optimizer);
  const ProfileSpan part(profiler_, StepProfiler::Phase::update);
  synchronizer_->finish_gradients();
  versions_.before_update();
  // Norms are sums over the ranks of this stage. If several of these ranks have the same
  // parameters, only the first counts (saves()).
  RankReducer reducer(mesh_.group(AxisSet::all().without({Axis::pipeline})), saves());
  const ExactSum squares = updater_.update_unseen(learning_rate, reducer);
  synchronizer_->after_update();
  synchronizer_->finish_values();
  return squares;
}

std::vector<StepResult> Replica::run_unflushed(std::span<const StepBatches> steps, int64_t first,
                                               std::span<const double> learning_rates) {
  int64_t passes = 1;
  for (const StepBatches& step : steps) passes = std::max(passes, step.passes);
  const pipeline::Plan& plan = gradients_.plan(passes, std::ssize(steps));
  const std::vector<StepCounts> counts = gradients_.count(steps);
  const std::vector<int64_t> backwards = gradients_.passes(plan, std::ssize(steps));

  std::vector<ExactSum> squares(steps.size());
  const auto on_update = [&](const pipeline::Action& action) {
    const auto index = static_cast<size_t>(action.version) - 1;
    squares[index] = unflushed_update(learning_rates[index]);
    if (index + 1 < steps.size()) begin_gradients(backwards);
  };
  versions_.begin(plan.ranks[static_cast<size_t>(stage())]);
  begin_gradients(backwards);
  gradients_.run(steps, counts, plan, versions_, on_update);
  versions_.end();

  // All stages exchange the results of the steps after the last one.
  RankReducer reducer(world(), saves());
  sum_over_owners(squares, reducer);
  std::array<double, 1> signs = {0};
  for (const StepBatches& step : steps) signs[0] += step.sign && step.sign() ? 1 : 0;
  const std::vector<StepLosses> losses = gradients_.share(counts, signs);
  std::vector<StepResult> results;
  for (size_t step = 0; step < steps.size(); ++step) {
    results.push_back({losses[step]});
    results[step].signs = static_cast<int>(signs[0]);
    results[step].gradient_norm = std::sqrt(squares[step].value());
    if (std::isfinite(results[step].loss) && std::isfinite(results[step].gradient_norm)) continue;
    throw_on_all(
        world(),
        Error(
            ErrorCode::invalid_argument,
            cat("step ", first + static_cast<int64_t>(step),
                ": the loss or the gradients are not finite"),
            {.cause = cat("training diverged at a learning rate of ", learning_rates[step]),
             .remedy = "use a smaller learning rate, a longer warm-up or a synchronous schedule"}));
  }
  return results;
}

}  // namespace tutti::training
