#include "training/parallel/averaging/diloco.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "base/reduce_op.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {

namespace {

std::span<float> part_of(std::span<float> row, int64_t first, int64_t count) {
  return row.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

}  // namespace

std::optional<int64_t> fragment_sent_at(const SyncOptions& options, int64_t update) {
  const auto [every, fragments] = std::pair(options.every, options.fragments);
  const int64_t in_round = (update - 1) % every + 1;  // from 1 to H
  // Fragment f is sent at (f + 1) H / P, rounded down; these are P different updates.
  const int64_t sent = (in_round * fragments + every - 1) / every;
  if (sent * every / fragments != in_round) return std::nullopt;
  return sent - 1;
}

DiLoCo::DiLoCo(ParameterStorage& storage, const SyncOptions& options)
    : Centred(storage, options), momentum_(allocate_row()), delta_(allocate_row()) {}

DiLoCo::~DiLoCo() {
  if (!mean_) return;
  try {
    if (std::uncaught_exceptions() > 0) ranks().abort("training failed with an error");
    mean_->wait();
  } catch (const std::exception&) {
    // A collective that failed has ended as well.
  }
}

void DiLoCo::after_weights(int) {
  if (mean_) mean_->test();
}

DiLoCo::Range DiLoCo::range_of(int64_t fragment) const {
  const int64_t first = this->count() * fragment / options().fragments;
  return {first, this->count() * (fragment + 1) / options().fragments - first};
}

void DiLoCo::exchange(int64_t update) {
  if (const auto fragment = fragment_sent_at(options(), update)) send_fragment(*fragment);
  const int64_t sent_at = update - options().delay;
  if (in_flight_ >= 0 && sent_at > 0 && fragment_sent_at(options(), sent_at))
    apply_mean(in_flight_);
}

void DiLoCo::send_fragment(int64_t fragment) {
  const auto from = std::chrono::steady_clock::now();
  const auto [first, count] = range_of(fragment);
  const std::span<float> delta = part_of(span_of(delta_), first, count);
  const std::span<const float> outer = part_of(centre(), first, count);
  values().read(first, delta);
  std::ranges::transform(outer, delta, delta.begin(), std::minus<>());
  const Buffer buffer{delta.data(), delta.size(), DType::f32};
  const bool deterministic = is_divided() && options().wire == WireFormat::plain;
  mean_ = ranks().all_reduce_async(buffer, buffer, ReduceOp::avg,
                                   {.deterministic = deterministic, .wire = options().wire});
  in_flight_ = fragment;
  count_all_reduce(bytes_of(options().wire, delta.size()));
  observe_span("send of a fragment", static_cast<int>(fragment), from);
}

void DiLoCo::wait_for_mean() {
  if (!mean_) return;
  const Waiting waiting(*this);
  mean_->wait();
  mean_.reset();
}

// If the reduction fails, throws before anything changes.
void DiLoCo::apply_mean(int64_t fragment) {
  const auto from = std::chrono::steady_clock::now();
  wait_for_mean();
  const auto [first, count] = range_of(fragment);
  const std::span<float> outer = part_of(centre(), first, count);
  const std::span<float> delta = part_of(span_of(delta_), first, count);
  const std::span<float> momentum = part_of(span_of(momentum_), first, count);
  optimizer_loops::loops().sgd(outer.data(), delta.data(), momentum.data(), count,
                               {.momentum = static_cast<float>(options().outer_momentum),
                                .rate = static_cast<float>(options().outer_rate),
                                .nesterov = true});
  if (options().own_share == 0) {
    values().write(first, outer);
  } else {
    const auto share = static_cast<float>(options().own_share);
    const std::span<float> merged = delta;  // reuses the memory of delta, which is no longer needed
    values().read(first, merged);
    std::ranges::transform(merged, outer, merged.begin(), [share](float own, float all) {
      return share * own + (1 - share) * all;
    });
    values().write(first, merged);
  }
  in_flight_ = -1;
  observe_span("mean of a fragment", static_cast<int>(fragment), from);
}

// Returns false if the state that was read is from a run with other fragments, or from one that
// sent fragments at other updates.
bool DiLoCo::has_same_schedule(StateVisitor& visitor) const {
  bool same = true;
  for (const auto& [name, own] :
       {std::pair("sync.every", options().every), std::pair("sync.fragments", options().fragments),
        std::pair("sync.delay", options().delay)}) {
    int64_t value = own;
    visitor.number(name, value, own);
    same = same && value == own;
  }
  return same;
}

// Also saves the mean of a fragment in flight. A resumed run applies the mean at the same update as
// an uninterrupted run.
void DiLoCo::visit_state(StateVisitor& visitor) {
  Centred::visit_state(visitor);
  wait_for_mean();
  visitor.number("sync.in_flight", in_flight_, int64_t{-1});
  if (!has_same_schedule(visitor)) in_flight_ = -1;
  if (!takes_own_values()) return;
  visit_row(visitor, "sync.momentum", span_of(momentum_));
  visit_row(visitor, "sync.delta", span_of(delta_));
}

}  // namespace tutti::training
