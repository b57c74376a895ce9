// Gradients of a step: runs this rank's micro-batches through its part of the pipeline, and
// exchanges their losses among all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/model.h"
#include "training/optimizers/exact_sum.h"
#include "training/parallel/mesh.h"
#include "training/pipeline/executor.h"
#include "training/pipeline/model_stage.h"
#include "training/pipeline/placement.h"
#include "training/pipeline/plans.h"
#include "training/pipeline/runner.h"

namespace tutti::training {

// The micro-batches of one step.
struct StepBatches {
  // Micro-batches of this data-parallel rank, in ascending order of samples; the same on all of its
  // stages. There is at least one, which may have weight 0; a rank with fewer than `passes` repeats
  // its last one with weight 0.
  std::span<const MicroBatch> own;
  int64_t passes = 1;  // maximum over all ranks
  // Divisor of the loss, which is summed over all ranks' targets. 0: the number of targets that
  // count, which may be 0.
  int64_t targets = 0;
  // The next step's micro-batches, if known on all ranks: their counts are then exchanged with this
  // step's losses instead of in a separate message.
  const StepBatches* next = nullptr;
  // Called when this rank's gradients are computed; StepResult::signs counts the ranks on which it
  // returned true.
  std::function<bool()> sign;
  // Returns the micro-batches of another rank's part, where ranks take parts of steps dynamically.
  // The result is valid until the next call.
  std::function<std::span<const MicroBatch>(int part)> of_part;
};

// Counts of the micro-batches of one rank, or of all ranks.
struct StepCounts {
  int64_t targets = 0;
  int64_t samples = 0;
  LossScales scales(double loss_scale) const;
};

struct StepLosses {
  double loss = 0;      // mean over the step's targets in nats, before the update
  double correct = 0;   // fraction of targets that had the largest logit
  int64_t targets = 0;  // number of counted targets; if 0, the means are 0
  // Losses that units add (Pass::add_loss): unweighted means over the step's samples.
  std::map<std::string, double> losses;
};

// Report of the pipeline. Without a pipeline the lists are empty.
struct PipelineReport {
  std::vector<int> cut;  // first unit of each chunk
  // By pipeline rank: maximum number of micro-batches (of any chunk) whose activations were kept at
  // once, and bytes of all activations and temporaries.
  std::vector<int64_t> activations;
  std::vector<int64_t> activation_bytes;
};

// All calls are collective, in the same order on all ranks.
class StepGradients {
 public:
  // All arguments must outlive it. `summed`: gradients become terms of the mean over all ranks'
  // targets; otherwise they are of the mean over this rank's targets.
  StepGradients(Mesh& mesh, Model& model, pipeline::Plans& plans,
                const pipeline::Placement& placement, bool summed, const RunnerOptions& options);

  // Hooks for units from now on; must outlive it.
  void set_hooks(UnitHooks& hooks);
  void record(Trace& trace) { executor_.record(trace); }

  // This rank's contribution to the counts of a step's batches: targets that several ranks share
  // are divided among them.
  StepCounts own_counts(const StepBatches& batches);
  // Sets the sum of the counts over all ranks for the next count().
  void expect(const StepCounts& all) { expected_ = all; }
  // Returns the counts by which gradients are scaled, needed before backward begins. Blocks for
  // other ranks only if gradients are summed and expect() was not called.
  std::vector<StepCounts> count(std::span<const StepBatches> steps);
  // Blocks until the counts of all ranks are known.
  const std::vector<StepCounts>& all_counts();
  // By unit: number of backward calls in each of a plan's steps.
  std::vector<int64_t> passes(const pipeline::Plan& plan, int64_t steps = 1) const;
  const pipeline::Plan& plan(int64_t passes, int64_t steps = 1) {
    return plans_.training(passes, steps);
  }
  // Adds this rank's gradients of one step.
  void run(const StepBatches& batches, const LossScales& scales);
  // Computes the gradients of several steps without a flush; `on_update` is called at the end of
  // each.
  void run(std::span<const StepBatches> steps, std::span<const StepCounts> counts,
           const pipeline::Plan& plan, pipeline::WeightVersions& versions,
           std::function<void(const pipeline::Action&)> on_update);
  // Call before run(). Begins the step's counts of experts' tokens. If some backward passes start
  // before all forward passes are done, counts by an extra forward pass of all micro-batches.
  void count_experts(const StepBatches& batches);
  void evaluate(std::span<const MicroBatch> own, int64_t passes);

  // In the last run: the first unit here whose output is not finite.
  const std::optional<int>& broken_unit() const { return stage_.broken_unit(); }
  // Returns the losses of the run's steps over all ranks (with empty `counts`: of the evaluation).
  // Each element of `more` becomes the sum over all ranks.
  std::vector<StepLosses> share(std::span<const StepCounts> counts, std::span<double> more);
  // Likewise for steps that this rank computed in several runs: `own` has, by step, what
  // add_losses() summed after these runs.
  using LossSums = std::vector<ExactSum>;
  std::vector<StepLosses> share(std::span<const StepCounts> counts, std::span<const LossSums> own,
                                std::span<double> more);
  // Adds the losses of the last run, which was of one step, to `sums`; `sums` starts out empty.
  void add_losses(LossSums& sums) const { add_found(0, sums); }

  std::chrono::nanoseconds waited() const { return executor_.waited(); }
  int64_t bytes_sent() const { return executor_.bytes_sent(); }
  const pipeline::Executor& executor() const { return executor_; }
  const ModelRunner& runner() const { return runner_; }
  PipelineReport report();

 private:
  size_t sums_of_a_step() const;
  void add_found(size_t step, LossSums& sums) const;
  void run_forward(std::span<const MicroBatch> own, int64_t passes, pipeline::StageMode mode);
  bool pipelined() const { return mesh_.size(Axis::pipeline) > 1; }
  // True if this rank's losses enter the step's sums: ranks along the other axes hold copies.
  bool tells() const {
    const AxisSet others = AxisSet::all().without(kBatchAxes | AxisSet{Axis::pipeline});
    return stage_.has_losses() && mesh_.place().first_along(others);
  }

  Mesh& mesh_;
  Model& model_;
  pipeline::Plans& plans_;
  const pipeline::Placement& placement_;
  bool summed_;
  std::vector<StepCounts> all_counts_;
  Work counting_;  // the exchange of all_counts_
  std::optional<StepCounts> expected_;
  ModelRunner runner_;
  pipeline::Executor executor_;
  pipeline::ModelStage stage_;
  size_t micro_batches_ = 0;  // in each of the run's steps
  UnitHooks* hooks_ = nullptr;
  std::optional<pipeline::PollingHooks> polling_;  // wraps hooks_
};

}  // namespace tutti::training
