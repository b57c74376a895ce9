#include "training/parallel/gradient_sums.h"

#include <bit>
#include <utility>

#include "training/core/slices.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

Tensor in(const Memory<std::byte>& memory, Tensor like) {
  return tensor_at(memory.get(), like.dtype, like.rows, like.cols, like.backend);
}

}  // namespace

int64_t GradientTree::levels(int64_t micro_batches) {
  if (micro_batches < 2) return 0;
  return std::bit_width(static_cast<uint64_t>(micro_batches - 1));
}

void GradientTree::end_micro_batch(Tensor gradient, const Allocate& allocate) {
  if (all_ < 2) return;
  const auto before = static_cast<uint64_t>(done_++);
  const bool is_last = done_ == all_;
  size_t level = 0;
  for (; before >> level != 0; ++level) {
    const bool is_there = (before >> level & 1) != 0;
    if (is_there) add(in(sums_[level], gradient), gradient, gradient);
    if (!is_there && !is_last) break;
  }
  if (is_last) return;
  if (level == sums_.size()) sums_.push_back(allocate(gradient.bytes()));
  copy(gradient, in(sums_[level], gradient));
  zero(gradient);
}

int GradientSums::sources(const ParameterSpec& spec) {
  // Tensor-parallel ranks have the same micro-batches, so they count once.
  return spec.mesh.ranks_along(spec.placement.owner.axes.without({Axis::tensor}));
}

GradientSums::GradientSums(ParameterTable& table, const Layout& layout, DType dtype,
                           GradientTree::Allocate allocate)
    : table_(table),
      dtype_(dtype),
      allocate_(std::move(allocate)),
      shared_uses_(table.shared_uses().size()) {
  for (const Slot& slot : layout.slots) {
    if (slot.parameter < 0 || slot.count == 0) continue;
    const ParameterSpec& spec = table.specs()[static_cast<size_t>(slot.parameter)];
    const int64_t rows = spec.local_rows();
    std::vector<Tensor> others;
    for (int source = 0; source < sources(spec); ++source) {
      Place& place = places_.emplace_back(Place{slot.parameter, source});
      if (source == 0) continue;
      place.memory = allocate_(static_cast<size_t>(slot.count) * size_of(dtype));
      others.push_back(tensor_at(place.memory.get(), dtype, rows, slot.count / rows));
    }
    table.set_other_gradients(slot.parameter, std::move(others));
  }
}

void GradientSums::begin_step(const std::vector<int64_t>& micro_batches) {
  of_unit_.assign(micro_batches.size(), {});
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    const ParameterSpec& spec = table_.specs()[static_cast<size_t>(place.parameter)];
    // If the parameter's own unit is on another stage, uses the number of micro-batches of the unit
    // on this stage that shares the parameter.
    auto unit = static_cast<size_t>(spec.unit);
    for (const SharedUse& use : table_.shared_uses()) {
      if (use.parameter == place.parameter && micro_batches[unit] == 0) {
        unit = static_cast<size_t>(use.unit);
      }
    }
    of_unit_[unit].push_back(i);
    place.tree.begin_step(micro_batches[unit]);
    if (place.source == 0) continue;
    const Parameter& parameter = table_.at(place.parameter);
    zero(parameter.gradient_of(place.source));
  }
  for (size_t use = 0; use < shared_uses_.size(); ++use) {
    const auto unit = static_cast<size_t>(table_.shared_uses()[use].unit);
    shared_uses_[use].begin_step(micro_batches[unit]);
  }
}

void GradientSums::end_micro_batch(int unit) {
  for (const size_t i : of_unit_[static_cast<size_t>(unit)]) {
    Place& place = places_[i];
    end(place.tree, table_.at(place.parameter).gradient_of(place.source));
  }
  for (size_t use = 0; use < shared_uses_.size(); ++use) {
    const SharedUse& shared = table_.shared_uses()[use];
    const Tensor gradient = shared.view.gradient;
    const bool is_separate = gradient.data != table_.at(shared.parameter).gradient.data;
    if (shared.unit == unit && is_separate) end(shared_uses_[use], gradient);
  }
}

void GradientSums::add_others(int parameter) {
  const Parameter& its = table_.at(parameter);
  add_up_in_order(its.sources(), [&](int into, int term) {
    add(its.gradient_of(into), its.gradient_of(term), its.gradient_of(into));
  });
}

int64_t GradientSums::bytes() const {
  int64_t elements = 0;
  for (const Place& place : places_) {
    const int64_t count = table_.specs()[static_cast<size_t>(place.parameter)].local_count();
    elements += count * (place.tree.levels() + (place.source == 0 ? 0 : 1));
  }
  for (size_t use = 0; use < shared_uses_.size(); ++use) {
    const auto parameter = static_cast<size_t>(table_.shared_uses()[use].parameter);
    elements += table_.specs()[parameter].local_count() * shared_uses_[use].levels();
  }
  return elements * static_cast<int64_t>(size_of(dtype_));
}

}  // namespace tutti::training
