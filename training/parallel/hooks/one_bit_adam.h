// 1-bit Adam: after a warm-up of plain Adam its second moment stays as it is (AdamMoments::
// frozen_after), and ranks tell each other their first moments, of a bit a value.
//
//   warm-up    g = sum of gradients                   m = beta1 m + (1 - beta1) g
//   after it   M = beta1 m / ranks + (1 - beta1) g of this rank, compressed with error feedback
//              m' = sum of M            the optimizer gets g = (m' - beta1 m) / (1 - beta1),
//              of which it makes m'
//
// A value that no gradient reaches in the warm-up stays as it is: Adam would divide by its second
// moment of 0. What the optimizer's type cannot hold of m' comes later, as what was not sent does.
//
// Sums are linear in gradients as long as every step multiplies them by the same factor: there must
// be no clipping after the warm-up.
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
  // Arguments are not kept. `beta1` is the optimizer's.
  OneBitAdam(int64_t warm_up_steps, double beta1, const Layout& layout,
             const std::vector<ParameterSpec>& specs);

  // Gradients are f32 or bf16 (as BlockCompression's).
  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  void finish(int bucket, Tensor gradients) override;
  bool remembers() const override { return true; }
  std::vector<HookState> states(Communicator& communicator, DType gradients) override;
  int64_t bytes() const override;
  int64_t payload_bytes(int bucket, Tensor gradients) const override;

 private:
  struct BucketState {
    BucketErrors momentum;  // of the sum of gradients: the same on all ranks
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
  bool corrects_ = false;  // this rank has the errors that all ranks make alike
};

}  // namespace tutti::training
