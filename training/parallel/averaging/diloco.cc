#include "training/parallel/averaging/diloco.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/reduce_op.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {

DiLoCo::DiLoCo(ParameterStorage& storage, const SyncOptions& options)
    : Averaging(storage), options_(options), row_(storage) {
  const auto count = static_cast<size_t>(row_.size());
  for (Memory<float>* const row : {&outer_, &momentum_, &delta_}) {
    *row = ranks().allocate<float>(count);
  }
}

void DiLoCo::publish_values() {
  if (std::exchange(loaded_, false)) return;
  row_.read(0, in(outer_, {0, row_.size()}));
}

std::optional<int64_t> DiLoCo::due(int64_t update) const {
  const int64_t phase = (update - 1) % options_.every + 1;  // 1 to H
  for (int64_t fragment = 0; fragment < options_.fragments; ++fragment) {
    if ((fragment + 1) * options_.every / options_.fragments == phase) return fragment;
  }
  return std::nullopt;
}

DiLoCo::Range DiLoCo::range_of(int64_t fragment) const {
  const int64_t first = row_.size() * fragment / options_.fragments;
  return {first, row_.size() * (fragment + 1) / options_.fragments - first};
}

std::span<float> DiLoCo::in(const Memory<float>& row, Range range) const {
  return {row.get() + range.first, static_cast<size_t>(range.count)};
}

void DiLoCo::exchange(int64_t update) {
  if (const auto fragment = due(update)) send(*fragment);
  if (update > options_.delay && due(update - options_.delay) && under_way_ >= 0) use(under_way_);
}

void DiLoCo::send(int64_t fragment) {
  const auto from = std::chrono::steady_clock::now();
  const Range range = range_of(fragment);
  const std::span<float> delta = in(delta_, range);
  const std::span<const float> outer = in(outer_, range);
  row_.read(range.first, delta);
  std::ranges::transform(outer, delta, delta.begin(), std::minus<>());
  const Buffer buffer{delta.data(), delta.size(), DType::f32};
  sum_ = ranks().all_reduce_async(buffer, buffer, ReduceOp::avg, {.wire = options_.wire});
  under_way_ = fragment;
  count_all_reduce(range.count, options_.wire);
  tell("send of a fragment", static_cast<int>(fragment), from);
}

// A sum that fails throws before anything changes.
void DiLoCo::use(int64_t fragment) {
  const auto from = std::chrono::steady_clock::now();
  if (sum_) sum_->wait();
  sum_.reset();
  const Range range = range_of(fragment);
  const std::span<float> outer = in(outer_, range);
  const std::span<float> delta = in(delta_, range);
  optimizer_loops::loops().sgd(outer.data(), delta.data(), in(momentum_, range).data(), range.count,
                               {.momentum = static_cast<float>(options_.outer_momentum),
                                .rate = static_cast<float>(options_.outer_rate),
                                .nesterov = true});
  if (options_.own_share == 0) {
    row_.write(range.first, outer);
  } else {
    const auto share = static_cast<float>(options_.own_share);
    const std::span<float> merged = delta;  // which is no longer needed
    row_.read(range.first, merged);
    std::ranges::transform(merged, outer, merged.begin(), [share](float own, float all) {
      return share * own + (1 - share) * all;
    });
    row_.write(range.first, merged);
  }
  under_way_ = -1;
  tell("average of a fragment", static_cast<int>(fragment), from);
}

void DiLoCo::visit_state(StateVisitor& visitor) {
  Averaging::visit_state(visitor);
  if (sum_) sum_->wait();  // its mean is saved, and used when its time comes
  sum_.reset();
  visitor.number("sync.under_way", under_way_, int64_t{-1});
  // A checkpoint of ranks that did otherwise has none: what follows is as at the beginning.
  if (!visitor.has("sync.outer")) return;
  const auto row = [&](const char* name, const Memory<float>& values) {
    visitor.row(name, tensor_at(values.get(), DType::f32, 1, row_.size()), RowKind::same);
  };
  row("sync.outer", outer_);
  row("sync.momentum", momentum_);
  row("sync.delta", delta_);
  loaded_ = !visitor.saves();
}

int64_t DiLoCo::bytes() const { return 3 * row_.size() * static_cast<int64_t>(sizeof(float)); }

}  // namespace tutti::training
