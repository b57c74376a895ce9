// 1-bit Adam: after a warm-up of plain Adam its second moment is constant
// (AdamMoments::frozen_after), and ranks exchange their first moments with one bit per value.
//
//   warm-up    g = sum of gradients                   m = beta1 m + (1 - beta1) g
//   then       M = beta1 m / ranks + (1 - beta1) g of this rank, compressed with error feedback
//              m' = sum of M            the optimizer gets g = (m' - beta1 m) / (1 - beta1),
//              from which it computes m'
//
// A value that had no gradients in the warm-up is not updated: Adam would divide by the root of the
// value's second moment, which is 0. The part of m' that is lost when g is rounded to the
// gradients' type is added to the error feedback.
//
// Sums are linear in gradients only if every step multiplies gradients by the same factor. Clipping
// must therefore be off after the warm-up.
//
// Tang et al.: 1-bit Adam: communication efficient large-scale training with Adam's convergence
// speed, 2021, algorithm 1.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "training/core/layout.h"
#include "training/parallel/data_parallel.h"
#include "training/parallel/hooks/block_compression.h"
#include "training/parallel/hooks/warm_up.h"

namespace tutti::training {

class OneBitAdam : public CommunicationHook {
 public:
  // Creates the hook; does not retain references to its arguments. `beta1` is the optimizer's.
  OneBitAdam(int64_t warm_up_steps, double beta1, const Layout& layout,
             const std::vector<ParameterSpec>& specs);

  // Begins the sum. Gradients must be f32 or bf16 (see BlockCompression).
  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  void finish(int bucket, Tensor gradients) override;
  bool remembers() const override { return true; }
  std::vector<HookState> states(Communicator& communicator, DType gradients) override;
  int64_t bytes() const override;
  int64_t payload_bytes(int bucket, Tensor gradients) const override;

 private:
  struct BucketState {
    BucketErrors momentum;  // momentum of the sum of gradients, which is equal on all ranks
    std::vector<float> sent;
    bool plain = true;
  };
  BucketState& state(int bucket) { return buckets_.at(static_cast<size_t>(bucket)); }
  const BucketState& state(int bucket) const { return buckets_.at(static_cast<size_t>(bucket)); }

  const int64_t steps_;
  const float beta1_;
  StepCount count_;
  PlainSums sums_;
  BlockCompression signs_;
  std::vector<BucketState> buckets_;
  bool corrects_ = false;  // true on the rank that keeps the errors common to all ranks
};

}  // namespace tutti::training
