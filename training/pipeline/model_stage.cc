#include "training/pipeline/model_stage.h"

#include <type_traits>
#include <utility>

namespace tutti::training::pipeline {

void ModelStage::begin(std::vector<StageBatch> batches, bool training, UnitHooks& hooks) {
  batches_ = std::move(batches);
  training_ = training;
  hooks_ = &hooks;
  versions_ = nullptr;
  on_update_ = nullptr;
  losses_.assign(batches_.size(), 0);
  correct_.assign(batches_.size(), 0);
  targets_.assign(batches_.size(), 0);
  broken_unit_.reset();
}

void ModelStage::begin(std::vector<StageBatch> batches, WeightVersions& versions,
                       std::function<void(const Action&)> on_update, UnitHooks& hooks) {
  begin(std::move(batches), true, hooks);
  versions_ = &versions;
  on_update_ = std::move(on_update);
}

template <typename Compute>
auto ModelStage::with_version(const Action& action, Compute&& compute) {
  if (versions_ != nullptr) versions_->use(action.version);
  if constexpr (std::is_void_v<decltype(compute())>) {
    compute();
    if (versions_ != nullptr) versions_->done(action.version);
  } else {
    const auto made = compute();
    if (versions_ != nullptr) versions_->done(action.version);
    return made;
  }
}

Tensor ModelStage::shape_after(int chunk, int micro_batch) const {
  const auto last = static_cast<size_t>(units(chunk).end) - 1;
  const OutputShape shape = model_.units()[last]->output_shape();
  return tensor_at(static_cast<void*>(nullptr), dtype_, at(micro_batch).batch->samples * shape.rows,
                   shape.cols);
}

Tensor ModelStage::forward(const Action& action, ConstTensor input) {
  const auto index = static_cast<size_t>(action.entry.micro_batch);
  const ModelRunner::Part part{.units = units(action.entry.chunk), .slot = action.slot};
  const auto& [batch, loss_scale] = batches_[index];
  const Tensor output = with_version(action, [&, batch = batch, loss_scale = loss_scale] {
    return training_ ? runner_.forward(part, *batch, input, loss_scale, *hooks_)
                     : runner_.forward_only(part, *batch, input, *hooks_);
  });
  const PassResult found = runner_.result(action.slot);
  if (action.entry.chunk + 1 == std::ssize(placement_.chunks)) {
    losses_[index] = found.loss_sum;
    correct_[index] = found.correct;
    targets_[index] = batch->target_count();
  }
  if (found.broken_unit && found.broken_unit < broken_unit_.value_or(part.units.end)) {
    broken_unit_ = found.broken_unit;
  }
  return output;
}

Tensor ModelStage::backward(const Action& action, ConstTensor output_gradient) {
  return with_version(action, [&] {
    return action.entry.kind == Kind::backward
               ? runner_.backward(action.slot, output_gradient, *hooks_)
               : runner_.backward_input(action.slot, output_gradient, *hooks_);
  });
}

void ModelStage::backward_weight(const Action& action) {
  with_version(action, [&] { runner_.backward_weight(action.slot, *hooks_); });
}

void ModelStage::skip(const Action& action) {
  if (versions_ != nullptr) versions_->done(action.version);
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
