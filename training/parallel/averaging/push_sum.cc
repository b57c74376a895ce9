#include "training/parallel/averaging/push_sum.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "training/parallel/averaging/peers.h"

namespace tutti::training {

PushSum::PushSum(ParameterStorage& storage, const SyncOptions& options, uint64_t seed)
    : Averaging(storage, options),
      seed_(seed),
      values_(storage),
      memory_(
          ranks().allocate<float>(static_cast<size_t>(copies_of_values(options)) * (count() + 1))) {
}

void PushSum::publish_values() {
  if (std::exchange(loaded_, false)) return publish_ratios();
  begin_with_values();
}

void PushSum::begin_with_values() {
  values_.read(0, row(0).first(count()));
  row(0).back() = 1;
}

void PushSum::exchange(int64_t update) {
  const int size = ranks().size();
  if (size == 1) return begin_with_values();
  const auto from = std::chrono::steady_clock::now();
  take_update();
  push(options().graph == GossipGraph::random ? random_targets(size, seed_, update)
                                              : exponential_targets(size, update));
  publish_ratios();
  observe_span("push of values", 0, from);
}

// x / w is bitwise equal to the value that the model had before its update.
void PushSum::take_update() {
  const std::span<float> updated = row(1).first(count());
  values_.read(0, updated);
  const std::span<float> x = row(0).first(count());
  for (size_t i = 0; i < x.size(); ++i) x[i] += updated[i] - x[i] / weight();
}

void PushSum::push(const std::vector<int>& targets) {
  const std::span<float> mine = row(0);
  for (float& value : mine) value /= 2;
  std::ranges::copy(mine, row(2).begin());
  const Waiting waiting(*this);
  const int own = ranks().rank();
  Work sent = send_async(row(2), targets[static_cast<size_t>(own)]);
  for (int from = 0; from < ranks().size(); ++from) {
    if (targets[static_cast<size_t>(from)] != own) continue;
    ranks().recv({row(1).data(), row(1).size(), DType::f32}, from);
    std::ranges::transform(mine, row(1), mine.begin(), std::plus<>());
  }
  sent.wait();
}

void PushSum::publish_ratios() {
  const std::span<float> z = row(1).first(count());
  const std::span<const float> x = row(0).first(count());
  for (size_t i = 0; i < x.size(); ++i) z[i] = x[i] / weight();
  values_.write(0, z);
}

void PushSum::visit_state(StateVisitor& visitor) {
  Averaging::visit_state(visitor);
  if (!takes_own_values() || !visitor.has("sync.numerators")) return;
  visitor.row("sync.numerators",
              tensor_at(memory_.get(), DType::f32, 1, static_cast<int64_t>(count()) + 1),
              RowKind::averaged);
  loaded_ = !visitor.saves();
}

}  // namespace tutti::training
