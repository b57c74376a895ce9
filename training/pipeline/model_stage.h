// A rank's chunks of a model, as a stage of a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "training/pipeline/executor.h"
#include "training/pipeline/placement.h"
#include "training/pipeline/weight_versions.h"
#include "training/runner.h"

namespace tutti::training::pipeline {

// One of a table's micro-batches.
struct StageBatch {
  const MicroBatch* batch = nullptr;  // none: there is no such micro-batch
  double loss_scale = 1;
};

class ModelStage : public StageWork {
 public:
  // All outlive it.
  ModelStage(Model& model, ModelRunner& runner, const Placement& placement, DType dtype)
      : model_(model), runner_(runner), placement_(placement), dtype_(dtype) {}

  // Before a run with these micro-batches, the table's first ones; it has no more of them. Without
  // `training` nothing is kept for backward.
  void begin(std::vector<StageBatch> batches, bool training, UnitHooks& hooks);
  // The same for a schedule that is not flushed: weights by version, and what to do at updates.
  // `versions` outlives the run.
  void begin(std::vector<StageBatch> batches, WeightVersions& versions,
             std::function<void(const Action&)> on_update, UnitHooks& hooks);

  // Of the run, where the last chunk is here: each micro-batch's losses, and how many were right;
  // 0 for those that there are not.
  const std::vector<double>& losses() const { return losses_; }
  const std::vector<int64_t>& correct() const { return correct_; }
  // How many targets they are; 0 where the loss was computed on another rank.
  const std::vector<int64_t>& targets() const { return targets_; }
  // The first unit here with a NaN or an infinity in its output.
  const std::optional<int>& broken_unit() const { return broken_unit_; }

  bool has(int micro_batch) const override {
    return micro_batch < std::ssize(batches_) && at(micro_batch).batch != nullptr;
  }
  Tensor shape_after(int chunk, int micro_batch) const override;
  Tensor forward(const Action& action, ConstTensor input) override;
  Tensor backward(const Action& action, ConstTensor output_gradient) override;
  void backward_weight(const Action& action) override;
  void skip(const Action& action) override;
  void update(const Action& action) override { on_update_(action); }

 private:
  const StageBatch& at(int micro_batch) const { return batches_[static_cast<size_t>(micro_batch)]; }
  // Computes with the weights of the action's version.
  template <typename Compute>
  auto with_version(const Action& action, Compute&& compute);
  UnitRange units(int chunk) const { return placement_.chunks[static_cast<size_t>(chunk)]; }

  Model& model_;
  ModelRunner& runner_;
  const Placement& placement_;
  DType dtype_;
  std::vector<StageBatch> batches_;
  bool training_ = true;
  WeightVersions* versions_ = nullptr;
  std::function<void(const Action&)> on_update_;
  UnitHooks* hooks_ = nullptr;
  std::vector<double> losses_;
  std::vector<int64_t> correct_;
  std::vector<int64_t> targets_;
  std::optional<int> broken_unit_;
};

// Moves a pipeline's messages between units.
class PollingHooks : public UnitHooks {
 public:
  // Both outlive it.
  PollingHooks(UnitHooks& inner, Executor& executor) : inner_(inner), executor_(executor) {}

  void before_forward(int unit) override { inner_.before_forward(unit); }
  void after_forward(int unit) override {
    inner_.after_forward(unit);
    executor_.poll();
  }
  void before_backward(int unit) override { inner_.before_backward(unit); }
  void after_backward(int unit) override {
    inner_.after_backward(unit);
    executor_.poll();
  }
  void before_weights(int unit) override { inner_.before_weights(unit); }
  void after_weights(int unit) override { inner_.after_weights(unit); }

 private:
  UnitHooks& inner_;
  Executor& executor_;
};

}  // namespace tutti::training::pipeline
