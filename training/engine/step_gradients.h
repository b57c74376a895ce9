// Computes the gradients of a step: runs this rank's micro-batches through its part of the
// pipeline, and exchanges their losses among all ranks.
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
  // Micro-batches of this data-parallel rank, in ascending order of samples; all stages of its
  // pipeline have the same micro-batches. There is at least one, which may have weight 0. A rank
  // that has fewer than `passes` repeats its last one with weight 0.
  std::span<const MicroBatch> own;
  int64_t passes = 1;  // maximum number of micro-batches of any rank
  // Divisor of the loss, which is summed over all ranks' targets. 0: the number of counted targets,
  // which may be 0.
  int64_t targets = 0;
  // The next step's micro-batches, or null. If no rank has null, their counts are exchanged
  // together with this step's losses instead of in a separate message.
  const StepBatches* next = nullptr;
  // Called once this rank has computed its gradients. StepResult::signs is the number of ranks on
  // which it returned true.
  std::function<bool()> sign;
  // Returns the micro-batches of part `part` of the step, for ranks that take parts of steps
  // dynamically; a rank may take any part. The result is valid until the next call.
  std::function<std::span<const MicroBatch>(int part)> of_part;
};

// Numbers of targets and samples in the micro-batches of one rank, or of all ranks.
struct StepCounts {
  int64_t targets = 0;
  int64_t samples = 0;
  LossScales scales(double loss_scale) const;
};

struct StepLosses {
  double loss = 0;      // mean over the step's targets in nats, before the update
  double correct = 0;   // accuracy: fraction of targets whose class had the largest logit
  int64_t targets = 0;  // number of counted targets; if 0, the means are 0
  // Means over the step's samples of the losses that units add (Pass::add_loss), without weights.
  std::map<std::string, double> losses;
};

// Measurements of the pipeline. Without a pipeline the lists are empty.
struct PipelineReport {
  std::vector<int> cut;  // first unit of each chunk
  // One value per pipeline rank. `activations`: maximum number of micro-batches (of any chunk)
  // whose activations were kept at once. `activation_bytes`: bytes of all activations and
  // temporaries.
  std::vector<int64_t> activations;
  std::vector<int64_t> activation_bytes;
};

// Runs the micro-batches of steps. All calls are collective, in the same order on all ranks.
class StepGradients {
 public:
  // Creates the object; all arguments must outlive it. The gradients are those of a mean loss.
  // `summed`: true if the mean is over the targets of all ranks, so that each rank's gradients are
  // terms of a sum; false if the mean is over this rank's targets.
  StepGradients(Mesh& mesh, Model& model, pipeline::Plans& plans,
                const pipeline::Placement& placement, bool summed, const RunnerOptions& options);

  // Sets the hooks that units' calls use from now on; `hooks` must outlive the object.
  void set_hooks(UnitHooks& hooks);
  void record(Trace& trace) { executor_.record(trace); }

  // Returns this rank's contribution to the counts of a step's batches. Targets that several ranks
  // share are divided among them.
  StepCounts own_counts(const StepBatches& batches);
  // Sets the counts of all ranks for the next count() of one step, which then need not exchange
  // them.
  void expect(const StepCounts& all) { expected_ = all; }
  // Returns, for each step, the counts by which gradients are scaled: those of all ranks if
  // gradients are summed, otherwise this rank's own. Waits for other ranks only if gradients are
  // summed and expect() was not called.
  std::vector<StepCounts> count(std::span<const StepBatches> steps);
  // Returns the counts of all ranks. Blocks until they are known.
  const std::vector<StepCounts>& all_counts();
  // Returns for each unit the number of its backward calls per step of a plan that has `steps`
  // steps.
  std::vector<int64_t> passes(const pipeline::Plan& plan, int64_t steps = 1) const;
  const pipeline::Plan& plan(int64_t passes, int64_t steps = 1) {
    return plans_.training(passes, steps);
  }
  // Computes this rank's gradients of one step and adds them to the model's.
  void run(const StepBatches& batches, const LossScales& scales);
  // Computes the gradients of several steps without a flush. Calls `on_update` at the end of each
  // step.
  void run(std::span<const StepBatches> steps, std::span<const StepCounts> counts,
           const pipeline::Plan& plan, pipeline::WeightVersions& versions,
           std::function<void(const pipeline::Action&)> on_update);
  // Counts the tokens that experts get in the step; call before run(). If some backward passes
  // start before all forward passes are done, counts in an extra forward pass of all micro-batches.
  void count_experts(const StepBatches& batches);
  void evaluate(std::span<const MicroBatch> own, int64_t passes);

  // Returns the first unit on this rank whose output was not finite in the last run.
  const std::optional<int>& broken_unit() const { return stage_.broken_unit(); }
  // Returns the losses of the last run's steps, summed over all ranks. If `counts` is empty,
  // returns the losses of the last evaluation. Each element of `more` becomes its sum over all
  // ranks.
  std::vector<StepLosses> share(std::span<const StepCounts> counts, std::span<double> more);
  // Returns the losses of steps that this rank computed in several runs: `own` has, for each step,
  // the sums of add_losses() after these runs.
  using LossSums = std::vector<ExactSum>;
  std::vector<StepLosses> share(std::span<const StepCounts> counts, std::span<const LossSums> own,
                                std::span<double> more);
  // Adds the losses of the last run, which must have had one step, to `sums`, which starts out
  // empty.
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
  // Returns true if this rank's losses enter the step's sums. Of the ranks that hold copies of the
  // same losses, only the first adds them.
  bool reports() const {
    const AxisSet others = AxisSet::all().without(kBatchAxes | AxisSet{Axis::pipeline});
    return stage_.has_losses() && mesh_.place().first_along(others);
  }

  Mesh& mesh_;
  Model& model_;
  pipeline::Plans& plans_;
  const pipeline::Placement& placement_;
  bool summed_;
  std::vector<StepCounts> all_counts_;
  Work counting_;  // the exchange of all_counts_ between ranks
  std::optional<StepCounts> expected_;
  ModelRunner runner_;
  pipeline::Executor executor_;
  pipeline::ModelStage stage_;
  size_t micro_batches_ = 0;  // number of micro-batches in each step of the run
  UnitHooks* hooks_ = nullptr;
  std::optional<pipeline::PollingHooks> polling_;  // forwards to hooks_
};

}  // namespace tutti::training
