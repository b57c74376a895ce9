// The gradients of a step: this rank's micro-batches through its part of the pipeline, and what all
// ranks are told of their losses.
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
  // This data-parallel rank's, in ascending order of samples; the same on all of its stages. At
  // least one, which may have weight 0; whoever has less than `passes` computes its last one again,
  // with weight 0.
  std::span<const MicroBatch> own;
  int64_t passes = 1;  // the most that any rank has
  // The loss is the sum over all ranks' targets divided by this. 0: by those that count, of which
  // there may be none.
  int64_t targets = 0;
  // Those of the step after, where they are known on all ranks: what they have that counts is then
  // told with this step's losses, instead of in a message of its own.
  const StepBatches* next = nullptr;
  // Asked when this rank's gradients are there: whether it wants to tell all ranks something
  // (StepResult::signs).
  std::function<bool()> sign;
  // Of another rank's part: where ranks take parts of steps one after the other. What it returns
  // lasts until the next call.
  std::function<std::span<const MicroBatch>(int part)> of_part;
};

// What the micro-batches of one rank, or of all, have that counts.
struct StepCounts {
  int64_t targets = 0;
  int64_t samples = 0;
  LossScales scales(double loss_scale) const;
};

struct StepLosses {
  double loss = 0;      // mean over the step's targets in nats, before the update
  double correct = 0;   // the share of targets that had the largest logit
  int64_t targets = 0;  // that were counted; without any the means are 0
  // What units add (Pass::add_loss): means over the step's samples, not weighted.
  std::map<std::string, double> losses;
};

// What became of the pipeline. Empty lists without one.
struct PipelineReport {
  std::vector<int> cut;  // the first unit of each chunk
  // By rank of the pipeline: the most micro-batches (of any chunk) whose activations were kept at
  // once, and the bytes of all activations and temporaries.
  std::vector<int64_t> activations;
  std::vector<int64_t> activation_bytes;
};

// Calls are made by all ranks, in one order.
class StepGradients {
 public:
  // All outlive it. `summed`: gradients are to be parts of the mean over all ranks' targets, else
  // the mean over this rank's own.
  StepGradients(Mesh& mesh, Model& model, pipeline::Plans& plans,
                const pipeline::Placement& placement, bool summed, const RunnerOptions& options);

  // Called around units from now on; outlives it.
  void set_hooks(UnitHooks& hooks);
  void record(Trace& trace) { executor_.record(trace); }

  // What this rank tells of a step's batches: what others have too it counts in part, or not at
  // all.
  StepCounts own_counts(const StepBatches& batches);
  // The sum of it over all ranks, for the next count().
  void expect(const StepCounts& all) { expected_ = all; }
  // What is to be known before backward begins: by how much gradients are scaled. Waits for other
  // ranks only where gradients are summed and nothing was expected.
  std::vector<StepCounts> count(std::span<const StepBatches> steps);
  // Those of all ranks, once they are known.
  const std::vector<StepCounts>& all_counts();
  // By unit: how often its backward runs in each of a plan's steps.
  std::vector<int64_t> passes(const pipeline::Plan& plan, int64_t steps = 1) const;
  const pipeline::Plan& plan(int64_t passes, int64_t steps = 1) {
    return plans_.training(passes, steps);
  }
  // Adds this rank's gradients of one step.
  void run(const StepBatches& batches, const LossScales& scales);
  // Those of several steps without a flush; `on_update` is called at the end of each.
  void run(std::span<const StepBatches> steps, std::span<const StepCounts> counts,
           const pipeline::Plan& plan, pipeline::WeightVersions& versions,
           std::function<void(const pipeline::Action&)> on_update);
  // Before run(): begins the step's counts of experts' tokens, and finishes them where backward
  // begins with some micro-batches before others have been forward.
  void count_experts(const StepBatches& batches);
  void evaluate(std::span<const MicroBatch> own, int64_t passes);

  // Of the last run: the first unit here whose output is not finite.
  const std::optional<int>& broken_unit() const { return stage_.broken_unit(); }
  // What the losses of the run's steps are on all ranks (with an empty `counts`: of what was
  // evaluated). Each of `more` becomes the sum of all ranks'.
  std::vector<StepLosses> share(std::span<const StepCounts> counts, std::span<double> more);
  // The same of steps that this rank has taken in parts, one run each: by step, what add_losses()
  // has added after these runs.
  using LossSums = std::vector<ExactSum>;
  std::vector<StepLosses> share(std::span<const StepCounts> counts, std::span<const LossSums> own,
                                std::span<double> more);
  // Adds those of the last run, which was of one step; empty sums are none yet.
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
  // True if this rank's losses enter the step's sums: ranks along the other axes hold copies of
  // them.
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
  Work counting_;  // in these
  std::optional<StepCounts> expected_;
  ModelRunner runner_;
  pipeline::Executor executor_;
  pipeline::ModelStage stage_;
  size_t micro_batches_ = 0;  // of each of the run's steps
  UnitHooks* hooks_ = nullptr;
  std::optional<pipeline::PollingHooks> polling_;  // around them
};

}  // namespace tutti::training
