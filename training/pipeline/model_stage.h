// A rank's chunks of a model, as a stage of a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/pipeline/executor.h"
#include "training/pipeline/placement.h"
#include "training/pipeline/runner.h"
#include "training/pipeline/weight_versions.h"

namespace tutti::training::pipeline {

// One of a table's micro-batches.
struct StageBatch {
  MicroBatch batch;
  LossScales scales;
};

// Appends a step's micro-batches as its table has them: this rank's, then its last one again, with
// weight 0. Throws Error(invalid_argument) where it has none.
void append_step(std::vector<StageBatch>& batches, std::span<const MicroBatch> own, int64_t table,
                 const LossScales& scales);

// What a number of micro-batches add up to.
enum Sum : size_t { loss_sum, correct_sum, target_sum, first_named_sum };

enum class StageMode : uint8_t {
  training,
  evaluation,  // nothing is kept for backward
  // Forward alone, as in training, up to the head: units count what backward must know before it
  // begins.
  counting,
};

class ModelStage : public StageWork {
 public:
  // All outlive it.
  ModelStage(Model& model, ModelRunner& runner, const Placement& placement, DType dtype);

  // Before a run with these micro-batches, the table's.
  void begin(std::vector<StageBatch> batches, StageMode mode, UnitHooks& hooks);
  // The same for a schedule that is not flushed: weights by version, and what to do at updates.
  // `versions` outlives the run.
  void begin(std::vector<StageBatch> batches, WeightVersions& versions,
             std::function<void(const Action&)> on_update, UnitHooks& hooks);

  // The losses besides the last unit's that the model's units have, wherever they lie.
  const std::vector<std::pair<int, std::string>>& named_losses() const { return named_; }
  // Whether any loss is computed here.
  bool has_losses() const;
  // One list for each of the run's micro-batches [first, first + count), in ascending order: the
  // sum of its losses, how many targets it got right, how many it has, then named_losses(). All are
  // 0 where they are not computed here, and of a micro-batch of weight 0.
  std::span<const std::vector<double>> found(size_t first, size_t count) const {
    return std::span(found_).subspan(first, count);
  }
  // The first unit here with a NaN or an infinity in its output.
  const std::optional<int>& broken_unit() const { return broken_unit_; }

  Tensor shape_after(int chunk, int micro_batch) const override;
  Tensor forward(const Action& action, ConstTensor input) override;
  Tensor backward(const Action& action, ConstTensor output_gradient) override;
  void backward_weight(const Action& action) override;
  void update(const Action& action) override { on_update_(action); }

 private:
  const StageBatch& at(int micro_batch) const { return batches_[static_cast<size_t>(micro_batch)]; }
  // Computes with the weights of the action's version.
  template <typename Compute>
  auto with_version(const Action& action, Compute&& compute);
  Tensor forward_only(ModelRunner::Part part, const MicroBatch& batch, ConstTensor input);
  void take_result(const Action& action);
  size_t index_of(const UnitLoss& loss) const;
  UnitRange units(int chunk) const { return placement_.chunks[static_cast<size_t>(chunk)]; }

  Model& model_;
  ModelRunner& runner_;
  const Placement& placement_;
  DType dtype_;
  std::vector<StageBatch> batches_;
  StageMode mode_ = StageMode::training;
  WeightVersions* versions_ = nullptr;
  std::function<void(const Action&)> on_update_;
  UnitHooks* hooks_ = nullptr;
  std::vector<std::pair<int, std::string>> named_;  // unit and name
  std::vector<std::vector<double>> found_;          // by micro-batch: see found()
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
