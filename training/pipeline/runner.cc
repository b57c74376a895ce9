#include "training/pipeline/runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "training/kernels/elementwise.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

// Moves `tensor` to the arena's position `mark`, and releases all memory after it.
Tensor move_down(ConstTensor tensor, Arena& arena, size_t mark) {
  arena.release(mark);
  const Tensor kept = arena.take(tensor.dtype, tensor.rows, tensor.cols);
  copy(tensor, kept);
  return kept;
}

// Returns a pass with the same context that takes memory from another arena.
Pass in_arena(const PassContext& context, Arena& arena) { return {context, arena}; }

}  // namespace

bool is_checkpointed(const Model& model, const RunnerOptions& options, int unit) {
  return options.checkpoint_units && unit + 1 < std::ssize(model.units()) &&
         !model.units()[static_cast<size_t>(unit)]->backward_needs_nothing();
}

bool keeps_rows(const Model& model, const RunnerOptions& options, const UnitRange& part, int unit) {
  const Unit& its = *model.units()[static_cast<size_t>(unit)];
  return options.partition_checkpoints && unit + 1 < part.end &&
         is_checkpointed(model, options, unit + 1) &&
         (is_checkpointed(model, options, unit) || its.backward_needs_nothing()) &&
         its.output_shape().layout == kReplicated;
}

ModelRunner::Slot& ModelRunner::slot(int index) {
  const auto at = static_cast<size_t>(index);
  while (slots_.size() <= at) slots_.emplace_back(options_.backend);
  return slots_[at];
}

void ModelRunner::wait_for_units() const {
  if (options_.backend != nullptr) options_.backend->synchronize();
}

Pass& ModelRunner::start(Slot& slot, const Part& part, const MicroBatch& batch, ConstTensor input,
                         bool training, const LossScales& scales) {
  slot.arena.release(0);
  if (slot.files) slot.files->release();
  slot.units = part.units;
  slot.input = input;
  slot.outputs.assign(static_cast<size_t>(part.units.end - part.units.begin), {});
  slot.losses.clear();
  return slot.pass.emplace(Pass{{.batch = &batch,
                                 .dtype = options_.dtype,
                                 .slot = part.slot,
                                 .seed = options_.seed,
                                 .training = training,
                                 .gemm_format = options_.gemm_format,
                                 .slices = model_.slices(),
                                 .mesh = options_.mesh,
                                 .cache = options_.cache,
                                 .loss_scale = scales.target,
                                 .sample_scale = scales.sample},
                                slot.arena});
}

Tensor ModelRunner::forward_unit(Slot& slot, Pass& pass, int index, ConstTensor input) {
  const Tensor output = unit(index).forward(pass, input);
  for (NamedLoss& loss : pass.losses) slot.losses.push_back({index, std::move(loss)});
  pass.losses.clear();
  return output;
}

Tensor ModelRunner::forward(const Part& part, const MicroBatch& batch, ConstTensor input,
                            const LossScales& scales, UnitHooks& hooks) {
  Slot& slot = this->slot(part.slot);
  Pass& pass = start(slot, part, batch, input, true, scales);
  input_end_ = 0;
  Tensor output;
  for (int index = part.units.begin; index < part.units.end; ++index) {
    hooks.before_forward(index);
    Tensor& kept = slot.outputs[static_cast<size_t>(index - part.units.begin)];
    if (keeps_rows(slot, index)) {
      output = forward_in_scratch(slot, index, input);
      kept = keep(slot, own_rows(output));
    } else {
      output = kept = is_checkpointed(index) ? forward_checkpointed(slot, index, input)
                                             : forward_unit(slot, pass, index, input);
    }
    hooks.after_forward(index);
    if (is_checkpointed(index)) evict_output(slot, index - 1);
    input = output;
  }
  wait_for_units();
  return output;
}

ConstTensor ModelRunner::own_rows(ConstTensor output) {
  const MeshPlace& place = model_.parameters().mesh();
  const Share own = even_share(output.rows, place.place(Axis::tensor), place.size(Axis::tensor));
  return output.row_range(own.first, own.count);
}

// Runs a unit in scratch memory. The output replaces this unit's input there, and the next unit
// reads it.
Tensor ModelRunner::forward_in_scratch(Slot& slot, int index, ConstTensor input) {
  scratch_.release(std::exchange(input_end_, 0));
  Pass pass = in_arena(*slot.pass, scratch_);
  const Tensor output = move_down(forward_unit(slot, pass, index, input), scratch_, 0);
  input_end_ = scratch_.mark();
  return output;
}

// Runs a unit in scratch memory and keeps only a copy of the output.
Tensor ModelRunner::forward_checkpointed(Slot& slot, int index, ConstTensor input) {
  scratch_.release(std::exchange(input_end_, 0));
  Pass pass = in_arena(*slot.pass, scratch_);
  const Tensor output = forward_unit(slot, pass, index, input);
  return keep(slot, output);
}

Tensor ModelRunner::keep(Slot& slot, ConstTensor output) {
  const bool in_file = options_.pager != nullptr && options_.backend == nullptr &&
                       !output.empty() && output.contiguous();
  if (!in_file) {
    const Tensor kept = slot.arena.take(output.dtype, output.rows, output.cols);
    copy(output, kept);
    return kept;
  }
  if (!slot.files) slot.files.emplace(*options_.pager);
  const Tensor kept =
      tensor_at(slot.files->take(output.bytes()), output.dtype, output.rows, output.cols);
  largest_kept_ = std::max(largest_kept_, kept.bytes());
  options_.pager->store({output.data, output.bytes()}, kept.data);
  return kept;
}

void ModelRunner::fetch_output(const Slot& slot, int unit) {
  if (!slot.files || unit < slot.units.begin) return;
  const Tensor& kept = slot.outputs[static_cast<size_t>(unit - slot.units.begin)];
  const PageRange range{{kept.data, kept.bytes()}, false};
  options_.pager->fetch({&range, 1});
}

void ModelRunner::evict_output(const Slot& slot, int unit) {
  if (!slot.files || unit < slot.units.begin) return;
  const Tensor& kept = slot.outputs[static_cast<size_t>(unit - slot.units.begin)];
  const PageRange range{{kept.data, kept.bytes()}, true};
  options_.pager->start_writing({&range, 1});
  options_.pager->evict({&range, 1});
}

PassResult ModelRunner::result(int index) {
  const Slot& slot = this->slot(index);
  const Loss& loss = slot.pass->loss.get();
  PassResult result{loss.sum, loss.correct, slot.losses, std::nullopt};
  const auto broken_loss = std::ranges::find_if(
      slot.losses, [](const UnitLoss& at) { return !std::isfinite(at.loss.sum.get()); });
  if (broken_loss != slot.losses.end()) result.broken_unit = broken_loss->unit;
  const bool has_loss = slot.units.end == unit_count();
  const bool finite =
      has_loss ? std::isfinite(result.loss_sum) : all_finite(slot.outputs.back()).get();
  if (finite) return result;
  // If no earlier output has a NaN or infinity, the last unit is reported, which computed the loss.
  size_t broken = 0;
  while (broken + 1 < slot.outputs.size() && all_finite(slot.outputs[broken]).get()) ++broken;
  const int unit = slot.units.begin + static_cast<int>(broken);
  result.broken_unit = std::min(unit, result.broken_unit.value_or(unit));
  return result;
}

ConstTensor ModelRunner::recomputed_input(Slot& slot, Pass& pass, int index) {
  const int first = slot.units.begin;
  if (index == first) return slot.input;
  const Tensor& kept = slot.outputs[static_cast<size_t>(index - first) - 1];
  if (!keeps_rows(slot, index - 1)) return kept;
  const int64_t rows = pass.batch->rows(unit(index - 1).output_shape().rows);
  return convert_layout(pass, model_.parameters().mesh(), ConstTensor(kept), {rows, kept.cols},
                        kTensorRows, kReplicated);
}

Tensor ModelRunner::backward_unit(Slot& slot, Pass& pass, int index, ConstTensor gradient,
                                  UnitHooks& hooks) {
  hooks.before_backward(index);
  fetch_output(slot, index - 1);
  fetch_output(slot, index - 2);
  if (is_checkpointed(index)) {
    const ConstTensor input = recomputed_input(slot, pass, index);
    pass.recomputing = true;
    unit(index).forward(pass, input);
    pass.losses.clear();  // the first forward has reported them
    pass.recomputing = false;
  }
  const Tensor input_gradient = unit(index).backward(pass, gradient);
  hooks.after_backward(index);
  // deferred work still needs the input
  if (!pass.split) evict_output(slot, index - 1);
  return input_gradient;
}

Tensor ModelRunner::backward(int index, ConstTensor output_gradient, UnitHooks& hooks) {
  Slot& slot = this->slot(index);
  scratch_.release(0);
  Pass pass = in_arena(*slot.pass, scratch_);
  ConstTensor gradient = output_gradient;
  Tensor input_gradient;
  for (int at = slot.units.end - 1; at >= slot.units.begin; --at) {
    input_gradient = backward_unit(slot, pass, at, gradient, hooks);
    wait_for_units();
    hooks.after_weights(at);
    gradient = input_gradient = move_down(input_gradient, scratch_, 0);
  }
  wait_for_units();
  return input_gradient;
}

Tensor ModelRunner::backward_input(int index, ConstTensor output_gradient, UnitHooks& hooks) {
  Slot& slot = this->slot(index);
  Pass& pass = *slot.pass;
  pass.split = true;
  slot.work_ends.assign(slot.outputs.size(), 0);
  ConstTensor gradient = output_gradient;
  Tensor input_gradient;
  for (int at = slot.units.end - 1; at >= slot.units.begin; --at) {
    gradient = input_gradient = backward_unit(slot, pass, at, gradient, hooks);
    slot.work_ends[static_cast<size_t>(at - slot.units.begin)] = pass.weight_work.size();
  }
  wait_for_units();
  return input_gradient;
}

void ModelRunner::backward_weight(int index, UnitHooks& hooks) {
  Slot& slot = this->slot(index);
  size_t next = 0;
  for (int at = slot.units.end - 1; at >= slot.units.begin; --at) {
    hooks.before_weights(at);
    const size_t end = slot.work_ends[static_cast<size_t>(at - slot.units.begin)];
    for (; next < end; ++next) slot.pass->weight_work[next]();
    wait_for_units();
    hooks.after_weights(at);
    evict_output(slot, at - 1);
  }
  slot.pass->weight_work.clear();
}

Tensor ModelRunner::forward_only(const Part& part, const MicroBatch& batch, ConstTensor input,
                                 UnitHooks& hooks, bool training) {
  Slot& slot = this->slot(part.slot);
  Pass& pass = start(slot, part, batch, input, training, {});
  Tensor values;
  for (int index = part.units.begin; index < part.units.end; ++index) {
    hooks.before_forward(index);
    const Tensor output = forward_unit(slot, pass, index, input);
    hooks.after_forward(index);
    input = values = move_down(output, slot.arena, 0);
  }
  slot.outputs.back() = values;
  wait_for_units();
  return values;
}

PassResult ModelRunner::train(const MicroBatch& batch, const LossScales& scales, UnitHooks& hooks) {
  forward({.units = all()}, batch, {}, scales, hooks);
  backward(0, {}, hooks);
  return result(0);
}

PassResult ModelRunner::evaluate(const MicroBatch& batch, UnitHooks& hooks) {
  forward_only({.units = all()}, batch, {}, hooks);
  const Slot& only = slot(0);
  const Loss& loss = only.pass->loss.get();
  return {loss.sum, loss.correct, only.losses, std::nullopt};
}

Tensor ModelRunner::predict(const MicroBatch& batch, UnitHooks& hooks) {
  return forward_only({.units = all()}, batch, {}, hooks);
}

std::vector<size_t> ModelRunner::slot_bytes() const {
  std::vector<size_t> bytes;
  for (const Slot& slot : slots_) bytes.push_back(slot.arena.high_water());
  return bytes;
}

size_t ModelRunner::file_bytes() const {
  size_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.files ? slot.files->high_water() : 0;
  return bytes;
}

// Counts three outputs for the slot that computes (the inputs of two units, and an output that is
// being written), and one for each other slot (the last unit's input).
size_t ModelRunner::page_bytes() const {
  return largest_kept_ == 0 ? 0 : (slots_.size() + 2) * largest_kept_;
}

size_t ModelRunner::activation_bytes() const {
  size_t bytes = scratch_.high_water();
  for (const Slot& slot : slots_) bytes += slot.arena.high_water();
  return bytes;
}

}  // namespace tutti::training
