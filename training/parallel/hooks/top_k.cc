#include "training/parallel/hooks/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/parallel/hooks/error_feedback.h"

namespace tutti::training {
namespace {

// Returns a number that grows with the value's magnitude and is largest for NaN.
uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffU; }

}  // namespace

TopK::TopK(double fraction, const Layout& layout, const std::vector<ParameterSpec>& specs) {
  if (!(fraction > 0 && fraction <= 1)) {
    throw Error(ErrorCode::invalid_argument, cat("top-k cannot send ", fraction, " of gradients"),
                {.where = "--compression",
                 .remedy = "use a number above 0 and at most 1, as in topk:0.01"});
  }
  size_t largest = 0;
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    BucketState& at = buckets_.emplace_back(BucketErrors(layout, specs, bucket));
    const double sent = std::ceil(fraction * static_cast<double>(at.errors.size()));
    at.sent = std::max<size_t>(1, static_cast<size_t>(sent));
    largest = std::max(largest, at.errors.size());
  }
  values_.resize(largest);
  indices_.resize(largest);
}

void TopK::prepare(BucketState& at, Communicator& communicator) {
  at.ranks = communicator.size();
  at.rank = communicator.rank();
  at.entries = communicator.allocate<Entry>(at.sent * static_cast<size_t>(at.ranks));
}

std::vector<HookState> TopK::states(Communicator&, DType gradients) {
  check_error_feedback("top-k", gradients);
  std::vector<HookState> states;
  for (BucketState& at : buckets_) at.errors.append_states("topk.error", states);
  return states;
}

// Prefers the lower index among equal magnitudes.
void TopK::choose(BucketState& at) {
  std::vector<float>& errors = at.errors.values();
  const std::span<uint32_t> all = std::span(indices_).first(errors.size());
  std::iota(all.begin(), all.end(), 0U);
  const auto is_larger = [&](uint32_t a, uint32_t b) {
    const uint32_t of_a = magnitude(errors[a]);
    const uint32_t of_b = magnitude(errors[b]);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  const std::span<uint32_t> sent = all.first(at.sent);
  if (at.sent < all.size()) {
    std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(at.sent), is_larger);
  }
  std::ranges::sort(sent);
  Entry* const own = at.entries.get() + at.sent * static_cast<size_t>(at.rank);
  for (size_t i = 0; i < sent.size(); ++i) {
    own[i] = {sent[i], errors[sent[i]]};
    errors[sent[i]] = 0;
  }
}

void TopK::start(Communicator& communicator, int bucket, Tensor gradients) {
  BucketState& at = state(bucket);
  if (at.ranks == 0) {
    check_error_feedback("top-k", gradients.dtype);
    prepare(at, communicator);
  }
  at.errors.add_gradients(gradients, std::span(values_).first(at.errors.size()));
  choose(at);
  const uint64_t bytes = at.sent * sizeof(Entry);
  at.gather = communicator.all_gather_async(
      {at.entries.get() + at.sent * static_cast<size_t>(at.rank), bytes, DType::u8},
      {at.entries.get(), bytes * static_cast<uint64_t>(at.ranks), DType::u8});
}

void TopK::finish(int bucket, Tensor gradients) {
  BucketState& at = state(bucket);
  at.gather.wait();
  const std::span<float> sum = std::span(values_).first(at.errors.size());
  std::ranges::fill(sum, 0.0f);
  for (size_t i = 0; i < at.sent * static_cast<size_t>(at.ranks); ++i) {
    const Entry& entry = at.entries.get()[i];
    sum[entry.index] += entry.value;
  }
  const Tensor values = f32_row(sum);
  convert(values, gradients);
  if (!all_finite(values).get()) std::ranges::fill(at.errors.values(), 0.0f);
}

int64_t TopK::payload_bytes(int bucket, Tensor) const {
  const BucketState& at = buckets_.at(static_cast<size_t>(bucket));
  return static_cast<int64_t>(at.sent * sizeof(Entry)) * at.ranks / 2;
}

int64_t TopK::bytes() const {
  auto bytes = static_cast<int64_t>(values_.size() * (sizeof(float) + sizeof(uint32_t)));
  for (const BucketState& at : buckets_) {
    bytes += static_cast<int64_t>(at.errors.size() * sizeof(float));
    bytes += static_cast<int64_t>(at.sent * sizeof(Entry)) * at.ranks;
  }
  return bytes;
}

}  // namespace tutti::training
