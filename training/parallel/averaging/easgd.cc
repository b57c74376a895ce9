#include "training/parallel/averaging/easgd.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace tutti::training {

namespace {

constexpr double kBeta = 0.9;

}  // namespace

Easgd::Easgd(ParameterStorage& storage, const SyncOptions& options)
    : Centred(storage, options),
      alpha_(static_cast<float>(options.elasticity.value_or(kBeta / ranks().size()))),
      differences_(allocate_row()) {}

// If the sum fails, throws before anything changes.
void Easgd::exchange(int64_t update) {
  if (update % options().every != 0) return;
  const auto from = std::chrono::steady_clock::now();
  const std::span<float> sum = span_of(differences_);
  const std::span<float> centre = this->centre();
  values().read(0, sum);
  std::ranges::transform(sum, centre, sum.begin(), std::minus<>());
  all_reduce({sum.data(), sum.size(), DType::f32}, ReduceOp::sum);
  const float* old_centre = centre.data();
  for (const OwnedPiece& piece : storage().owned()) {
    for (float& value : piece.master) value -= alpha_ * (value - *old_centre++);
    store_masters(piece);
  }
  for (size_t i = 0; i < sum.size(); ++i) centre[i] += alpha_ * sum[i];
  observe_span("elastic average", 0, from);
}

}  // namespace tutti::training
