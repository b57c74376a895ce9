// Runs micro-batches through a model's units, forward and backward, with or without keeping every
// unit's activations.
//
//   forward   unit 0 ... unit n-1     outputs stay in the arena (checkpointed: outputs only)
//   backward  unit n-1 ... unit 0     (checkpointed: each unit's forward once more)
//
// Activation checkpointing: Chen et al.: Training deep nets with sublinear memory cost, 2016.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "training/model.h"

namespace tutti::training {

// What happens around a unit's calls: whoever keeps parameters elsewhere brings them and takes them
// away (ZeRO-3), whoever sums gradients over ranks learns that a unit's are complete.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void before_forward(int unit) {}
  virtual void after_forward(int unit) {}
  virtual void before_backward(int unit) {}
  virtual void after_backward(int unit) {}
};

struct RunnerOptions {
  DType dtype = DType::f32;       // of activations
  bool checkpoint_units = false;  // keep each unit's output only
  uint64_t seed = 0;              // of dropout
};

struct PassResult {
  double loss_sum = 0;  // in nats, over the micro-batch's targets
  int64_t correct = 0;  // targets that had the largest logit
  // The first unit with a NaN or an infinity in its output, if the loss is not finite.
  std::optional<int> broken_unit;
};

class ModelRunner {
 public:
  // The model outlives the runner.
  ModelRunner(Model& model, const RunnerOptions& options) : model_(model), options_(options) {}

  // Adds loss_scale * d(sum of losses)/dParameter to the gradients. With a loss that is not finite,
  // backward runs all the same: its gradients tell the other ranks.
  PassResult train(const MicroBatch& batch, double loss_scale, UnitHooks& hooks);
  // The hooks alone, in the order of train() or evaluate(): for a rank that has no micro-batch left
  // while others have, and must take part in their communication.
  void shadow_train(UnitHooks& hooks) const;
  void shadow_evaluate(UnitHooks& hooks) const;
  PassResult evaluate(const MicroBatch& batch, UnitHooks& hooks);
  // Logits of every position, valid until the next call.
  Tensor predict(const MicroBatch& batch, UnitHooks& hooks);

  // The most bytes that activations and temporaries took.
  size_t activation_bytes() const { return arena_.high_water(); }

 private:
  Pass make_pass(const MicroBatch& batch, bool training);
  void forward_for_training(Pass& pass, UnitHooks& hooks);
  void backward(Pass& pass, UnitHooks& hooks);
  Tensor forward_only(Pass& pass, UnitHooks& hooks);
  // Puts `tensor` where the arena stood at `mark`, and forgets everything else from there on.
  Tensor move_down(ConstTensor tensor, size_t mark);

  int unit_count() const { return static_cast<int>(model_.units().size()); }
  Unit& unit(int index) { return *model_.units()[static_cast<size_t>(index)]; }
  bool is_checkpointed(int index) const {
    return options_.checkpoint_units && index + 1 < unit_count() &&
           !model_.units()[static_cast<size_t>(index)]->backward_needs_nothing();
  }

  Model& model_;
  RunnerOptions options_;
  Arena arena_;
  std::vector<size_t> marks_;    // where each unit's memory begins
  std::vector<Tensor> outputs_;  // by unit
};

}  // namespace tutti::training
