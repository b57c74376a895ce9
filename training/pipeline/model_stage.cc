#include "training/pipeline/model_stage.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::pipeline {

void append_step(std::vector<StageBatch>& batches, std::span<const MicroBatch> own, int64_t table,
                 const LossScales& scales) {
  if (own.empty()) {
    throw Error(ErrorCode::invalid_argument, "a rank has no micro-batch",
                {.cause = "the exchange between units of a model requires all ranks",
                 .remedy = "pass a micro-batch of another rank, with weight 0"});
  }
  for (int64_t i = 0; i < table; ++i) {
    const bool there = i < std::ssize(own);
    StageBatch& batch = batches.emplace_back();
    batch.batch = there ? own[static_cast<size_t>(i)] : own.back();
    if (!there) batch.batch.weight = 0;
    batch.scales = batch.batch.weight == 0 ? LossScales{0, 0} : scales;
  }
}

ModelStage::ModelStage(Model& model, ModelRunner& runner, const Placement& placement, DType dtype)
    : model_(model), runner_(runner), placement_(placement), dtype_(dtype) {
  for (int unit = 0; unit < std::ssize(model.units()); ++unit) {
    for (std::string& name : model.units()[static_cast<size_t>(unit)]->losses()) {
      named_.emplace_back(unit, std::move(name));
    }
  }
}

void ModelStage::begin(std::vector<StageBatch> batches, StageMode mode, UnitHooks& hooks) {
  batches_ = std::move(batches);
  mode_ = mode;
  hooks_ = &hooks;
  versions_ = nullptr;
  on_update_ = nullptr;
  found_.assign(batches_.size(), std::vector<double>(first_named_sum + named_.size()));
  broken_unit_.reset();
}

void ModelStage::begin(std::vector<StageBatch> batches, WeightVersions& versions,
                       std::function<void(const Action&)> on_update, UnitHooks& hooks) {
  begin(std::move(batches), StageMode::training, hooks);
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
  const int64_t rows = shape.rows_at(model_.parameters().mesh(), at(micro_batch).batch);
  return tensor_at(static_cast<void*>(nullptr), dtype_, rows, shape.cols);
}

Tensor ModelStage::forward(const Action& action, ConstTensor input) {
  const ModelRunner::Part part{.units = units(action.entry.chunk), .slot = action.slot};
  const StageBatch& own = at(action.entry.micro_batch);
  const Tensor output = with_version(action, [&] {
    return mode_ == StageMode::training
               ? runner_.forward(part, own.batch, input, own.scales, *hooks_)
               : forward_only(part, own.batch, input);
  });
  if (mode_ == StageMode::evaluation) take_result(action);
  return output;
}

Tensor ModelStage::forward_only(ModelRunner::Part part, const MicroBatch& batch,
                                ConstTensor input) {
  const bool counting = mode_ == StageMode::counting;
  const bool has_head = part.units.end == std::ssize(model_.units());
  if (counting && has_head && part.units.end - part.units.begin > 1) --part.units.end;
  return runner_.forward_only(part, batch, input, *hooks_, counting);
}

// In training this is called after backward, because it blocks for the loss.
void ModelStage::take_result(const Action& action) {
  const MicroBatch& batch = at(action.entry.micro_batch).batch;
  if (batch.weight == 0) return;
  std::vector<double>& sums = found_[static_cast<size_t>(action.entry.micro_batch)];
  const PassResult found = runner_.result(action.slot);
  if (action.entry.chunk + 1 == std::ssize(placement_.chunks)) {
    sums[loss_sum] = found.loss_sum;
    sums[correct_sum] = static_cast<double>(found.correct);
    sums[target_sum] = static_cast<double>(model_.targets_in(batch));
  }
  for (const UnitLoss& loss : found.losses) sums[index_of(loss)] += loss.loss.sum.get();
  const int unit_count = static_cast<int>(model_.units().size());
  if (found.broken_unit && found.broken_unit < broken_unit_.value_or(unit_count)) {
    broken_unit_ = found.broken_unit;
  }
}

size_t ModelStage::index_of(const UnitLoss& loss) const {
  const auto known = std::ranges::find(named_, std::pair(loss.unit, loss.loss.name));
  if (known == named_.end()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the unit ", model_.units()[static_cast<size_t>(loss.unit)]->name(),
                    " added the undeclared loss ", loss.loss.name),
                {.cause = "all ranks must know each loss that some of them compute",
                 .remedy = "declare it in losses()"});
  }
  return first_named_sum + static_cast<size_t>(known - named_.begin());
}

bool ModelStage::has_losses() const {
  return placement_.has_loss() || std::ranges::any_of(named_, [&](const auto& named) {
           return placement_.has_unit(named.first);
         });
}

Tensor ModelStage::backward(const Action& action, ConstTensor output_gradient) {
  const Tensor input_gradient = with_version(action, [&] {
    return action.entry.kind == Kind::backward
               ? runner_.backward(action.slot, output_gradient, *hooks_)
               : runner_.backward_input(action.slot, output_gradient, *hooks_);
  });
  take_result(action);
  return input_gradient;
}

void ModelStage::backward_weight(const Action& action) {
  with_version(action, [&] { runner_.backward_weight(action.slot, *hooks_); });
}

}  // namespace tutti::training::pipeline
