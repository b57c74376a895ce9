// A rank's chunks of a model, which the executor runs as a stage of a pipeline.
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

// A micro-batch in a table.
struct StageBatch {
  MicroBatch batch;
  LossScales scales;
};

// Appends one step's micro-batches to `batches`: first `own`, this rank's micro-batches, then
// copies of the last of them with weight 0. `table`: number of micro-batches that the schedule's
// table has for a step, at least the size of `own`. Throws Error(invalid_argument) if `own` is
// empty.
void append_step(std::vector<StageBatch>& batches, std::span<const MicroBatch> own, int64_t table,
                 const LossScales& scales);

// Indices in a micro-batch's list of sums (ModelStage::found()).
enum Sum : size_t { loss_sum, correct_sum, target_sum, first_named_sum };

enum class StageMode : uint8_t {
  training,
  evaluation,  // forward only; keeps nothing for backward
  // forward only, with training's dropout and statistics, but without the head; units count their
  // experts' tokens, because backward needs these counts
  counting,
};

class ModelStage : public StageWork {
 public:
  // Creates the stage; all arguments must outlive it.
  ModelStage(Model& model, ModelRunner& runner, const Placement& placement, DType dtype);

  // Call before a run; `batches` are the table's micro-batches.
  void begin(std::vector<StageBatch> batches, StageMode mode, UnitHooks& hooks);
  // Call before a run of a schedule without flushes, which uses versioned weights and calls
  // `on_update` at updates. `versions` must outlive the run.
  void begin(std::vector<StageBatch> batches, WeightVersions& versions,
             std::function<void(const Action&)> on_update, UnitHooks& hooks);

  // Returns the unit and the name of each loss that units of the model add, on all stages. The last
  // unit's loss of targets is not included.
  const std::vector<std::pair<int, std::string>>& named_losses() const { return named_; }
  // Returns true if this rank computes any loss.
  bool has_losses() const;
  // Returns the results of the run's micro-batches [first, first + count), in ascending order. Each
  // list has the loss sum, the number of correct targets, the number of targets, and the losses of
  // named_losses(). Values that another rank computes are 0, and so are all values of a micro-batch
  // of weight 0.
  std::span<const std::vector<double>> found(size_t first, size_t count) const {
    return std::span(found_).subspan(first, count);
  }
  // Returns the first unit on this rank with a NaN or an infinity in its output or in a loss.
  const std::optional<int>& broken_unit() const { return broken_unit_; }

  Tensor shape_after(int chunk, int micro_batch) const override;
  Tensor forward(const Action& action, ConstTensor input) override;
  Tensor backward(const Action& action, ConstTensor output_gradient) override;
  void backward_weight(const Action& action) override;
  void update(const Action& action) override { on_update_(action); }

 private:
  const StageBatch& at(int micro_batch) const { return batches_[static_cast<size_t>(micro_batch)]; }
  // Calls compute() with the weights of the action's version, and returns its result.
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
  std::vector<std::pair<int, std::string>> named_;  // units and names
  std::vector<std::vector<double>> found_;          // by micro-batch: the list of found()
  std::optional<int> broken_unit_;
};

// Forwards all calls to `inner`, and makes progress on a pipeline's messages after the forward and
// after the backward of each unit.
class PollingHooks : public UnitHooks {
 public:
  // Creates the hooks; `inner` and `executor` must outlive them.
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
