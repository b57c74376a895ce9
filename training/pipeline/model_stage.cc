#include "training/pipeline/model_stage.h"

namespace tutti::training::pipeline {

void ModelStage::begin(std::span<const MicroBatch> batches, double loss_scale, bool training,
                       UnitHooks& hooks) {
  batches_ = batches;
  loss_scale_ = loss_scale;
  training_ = training;
  hooks_ = &hooks;
  losses_.assign(batches.size(), 0);
  correct_.assign(batches.size(), 0);
  broken_unit_.reset();
}

Tensor ModelStage::shape_after(int chunk, int micro_batch) const {
  const auto last = static_cast<size_t>(units(chunk).end) - 1;
  const OutputShape shape = model_.units()[last]->output_shape();
  return tensor_at(static_cast<void*>(nullptr), dtype_, batch(micro_batch).samples * shape.rows,
                   shape.cols);
}

Tensor ModelStage::forward(const Action& action, ConstTensor input) {
  const auto index = static_cast<size_t>(action.entry.micro_batch);
  const ModelRunner::Part part{.units = units(action.entry.chunk), .slot = action.slot};
  const MicroBatch& batch = batches_[index];
  const Tensor output = training_ ? runner_.forward(part, batch, input, loss_scale_, *hooks_)
                                  : runner_.forward_only(part, batch, input, *hooks_);
  const PassResult found = runner_.result(action.slot);
  losses_[index] = found.loss_sum;
  correct_[index] = found.correct;
  if (found.broken_unit && found.broken_unit < broken_unit_.value_or(part.units.end)) {
    broken_unit_ = found.broken_unit;
  }
  return output;
}

Tensor ModelStage::backward(const Action& action, ConstTensor output_gradient) {
  return action.entry.kind == Kind::backward
             ? runner_.backward(action.slot, output_gradient, *hooks_)
             : runner_.backward_input(action.slot, output_gradient, *hooks_);
}

void ModelStage::backward_weight(const Action& action) {
  runner_.backward_weight(action.slot, *hooks_);
}

void ModelStage::skip(const Action& action) {
  const UnitRange range = units(action.entry.chunk);
  switch (action.entry.kind) {
    case Kind::forward:
      return shadow_forward(range, *hooks_);
    case Kind::backward:
      return shadow_backward(range, *hooks_);
    case Kind::backward_input:
      return shadow_backward_input(range, *hooks_);
    case Kind::backward_weight:
      return shadow_backward_weight(range, *hooks_);
  }
}

}  // namespace tutti::training::pipeline
