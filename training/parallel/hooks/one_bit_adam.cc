#include "training/parallel/hooks/one_bit_adam.h"

#include <span>

#include "training/kernels/elementwise.h"
#include "training/parallel/hooks/error_feedback.h"

namespace tutti::training {

namespace {

// Returns true if no gradient reached the value in the warm-up: its second moment, a divisor, is
// then 0.
bool is_masked(float momentum) { return momentum == 0; }

}  // namespace

OneBitAdam::OneBitAdam(int64_t warm_up_steps, double beta1, const Layout& layout,
                       const std::vector<ParameterSpec>& specs)
    : steps_(warm_up_steps),
      beta1_(static_cast<float>(beta1)),
      signs_(BlockFormat::sign, layout, specs) {
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    BucketErrors momentum(layout, specs, bucket);
    std::vector<float> sent(momentum.size());
    buckets_.push_back({std::move(momentum), std::move(sent)});
  }
}

void OneBitAdam::start(Communicator& communicator, int bucket, Tensor gradients) {
  check_error_feedback("onebit-adam", gradients.dtype);
  corrects_ = communicator.rank() == 0;
  BucketState& at = state(bucket);
  at.plain = count_.at(bucket) < steps_;
  if (at.plain) return sums_.start(communicator, bucket, gradients);
  convert(gradients, f32_row(at.sent));
  const float share = beta1_ / static_cast<float>(communicator.size());
  const std::span<const float> momentum = at.momentum.values();
  for (size_t i = 0; i < at.sent.size(); ++i) {
    at.sent[i] = is_masked(momentum[i]) ? 0 : share * momentum[i] + (1 - beta1_) * at.sent[i];
  }
  signs_.start(communicator, bucket, f32_row(at.sent));
}

void OneBitAdam::finish(int bucket, Tensor gradients) {
  BucketState& at = state(bucket);
  const std::span<float> momentum = at.momentum.values();
  if (at.plain) {
    sums_.finish(bucket);
    convert(gradients, f32_row(at.sent));
    for (size_t i = 0; i < at.sent.size(); ++i) {
      momentum[i] = beta1_ * momentum[i] + (1 - beta1_) * at.sent[i];
    }
    return;
  }
  signs_.finish(bucket, f32_row(at.sent));
  const std::vector<float> new_moments = at.sent;
  for (size_t i = 0; i < at.sent.size(); ++i) {
    at.sent[i] =
        is_masked(momentum[i]) ? 0 : (new_moments[i] - beta1_ * momentum[i]) / (1 - beta1_);
  }
  convert(f32_row(at.sent), gradients);
  convert(gradients, f32_row(at.sent));  // the rounded values that the optimizer gets
  std::vector<float>& errors = signs_.errors(bucket);
  for (size_t i = 0; i < at.sent.size(); ++i) {
    if (is_masked(momentum[i])) {
      errors[i] = 0;
      continue;
    }
    momentum[i] = beta1_ * momentum[i] + (1 - beta1_) * at.sent[i];
    if (corrects_) errors[i] += new_moments[i] - momentum[i];
  }
}

std::vector<HookState> OneBitAdam::states(Communicator& communicator, DType gradients) {
  std::vector<HookState> states = signs_.states(communicator, gradients);
  for (BucketState& at : buckets_) {
    const size_t first = states.size();
    at.momentum.append_states("onebit.moment", states);
    for (size_t i = first; i < states.size(); ++i) states[i].kind = RowKind::same;
  }
  states.push_back(count_.state("onebit.steps"));
  return states;
}

int64_t OneBitAdam::bytes() const {
  int64_t bytes = signs_.bytes();
  for (const BucketState& at : buckets_) {
    bytes += 2 * static_cast<int64_t>(at.sent.size() * sizeof(float));
  }
  return bytes;
}

int64_t OneBitAdam::payload_bytes(int bucket, Tensor gradients) const {
  return state(bucket).plain ? static_cast<int64_t>(gradients.bytes())
                             : signs_.payload_bytes(bucket, gradients);
}

}  // namespace tutti::training
