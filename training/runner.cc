#include "training/runner.h"

#include <cmath>
#include <cstring>

#include "training/kernels/elementwise.h"

namespace tutti::training {

Pass ModelRunner::make_pass(const MicroBatch& batch, bool training) {
  arena_.release(0);
  Pass pass{.arena = arena_};
  pass.batch = &batch;
  pass.dtype = options_.dtype;
  pass.seed = options_.seed;
  pass.training = training;
  return pass;
}

Tensor ModelRunner::move_down(ConstTensor tensor, size_t mark) {
  arena_.release(mark);
  const Tensor kept = arena_.take(tensor.dtype, tensor.rows, tensor.cols);
  if (!tensor.empty()) std::memmove(kept.data, tensor.data, tensor.bytes());
  return kept;
}

void ModelRunner::forward_for_training(Pass& pass, UnitHooks& hooks) {
  marks_.resize(model_.units().size());
  outputs_.resize(model_.units().size());
  ConstTensor input;
  for (int index = 0; index < unit_count(); ++index) {
    const auto at = static_cast<size_t>(index);
    marks_[at] = arena_.mark();
    hooks.before_forward(index);
    outputs_[at] = unit(index).forward(pass, input);
    hooks.after_forward(index);
    if (is_checkpointed(index)) outputs_[at] = move_down(outputs_[at], marks_[at]);
    input = outputs_[at];
  }
}

void ModelRunner::backward(Pass& pass, UnitHooks& hooks) {
  Tensor gradient;
  for (int index = unit_count() - 1; index >= 0; --index) {
    const auto at = static_cast<size_t>(index);
    hooks.before_backward(index);
    if (is_checkpointed(index)) {
      pass.recomputing = true;
      unit(index).forward(pass, index == 0 ? ConstTensor{} : ConstTensor(outputs_[at - 1]));
      pass.recomputing = false;
    }
    gradient = unit(index).backward(pass, gradient);
    hooks.after_backward(index);
    gradient = move_down(gradient, marks_[at]);
  }
}

PassResult ModelRunner::train(const MicroBatch& batch, double loss_scale, UnitHooks& hooks) {
  Pass pass = make_pass(batch, true);
  pass.loss_scale = loss_scale;
  forward_for_training(pass, hooks);
  PassResult result{pass.loss_sum, pass.correct, std::nullopt};
  if (!std::isfinite(pass.loss_sum)) {
    int broken = 0;  // without an earlier one it is the last unit, whose loss it is
    while (broken + 1 < unit_count() && all_finite(outputs_[static_cast<size_t>(broken)])) ++broken;
    result.broken_unit = broken;
  }
  backward(pass, hooks);
  return result;
}

void ModelRunner::shadow_evaluate(UnitHooks& hooks) const {
  for (int index = 0; index < unit_count(); ++index) {
    hooks.before_forward(index);
    hooks.after_forward(index);
  }
}

void ModelRunner::shadow_train(UnitHooks& hooks) const {
  shadow_evaluate(hooks);
  for (int index = unit_count() - 1; index >= 0; --index) {
    hooks.before_backward(index);
    hooks.after_backward(index);
  }
}

// Without backward, nothing but the last output need be kept.
Tensor ModelRunner::forward_only(Pass& pass, UnitHooks& hooks) {
  Tensor values;
  for (int index = 0; index < unit_count(); ++index) {
    hooks.before_forward(index);
    const Tensor output = unit(index).forward(pass, values);
    hooks.after_forward(index);
    values = move_down(output, 0);
  }
  return values;
}

PassResult ModelRunner::evaluate(const MicroBatch& batch, UnitHooks& hooks) {
  Pass pass = make_pass(batch, false);
  forward_only(pass, hooks);
  return {pass.loss_sum, pass.correct, std::nullopt};
}

Tensor ModelRunner::predict(const MicroBatch& batch, UnitHooks& hooks) {
  Pass pass = make_pass(batch, false);
  return forward_only(pass, hooks);
}

}  // namespace tutti::training
