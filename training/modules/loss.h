// The loss of a classifier's or language model's last unit: softmax cross-entropy of the logits
// with the micro-batch's targets.
#pragma once

#include <span>

#include "training/core/pass.h"
#include "training/kernels/cross_entropy.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

// Computes the loss, and keeps state for backward, so each micro-batch in flight needs its own
// object.
class LossPart {
 public:
  // Sets pass.loss if the micro-batch has targets. Returns the logits, which backward overwrites.
  Tensor forward(Pass& pass, Tensor logits) { return forward(pass, logits, pass.batch->targets); }
  // Does the same with `targets`, one per row of logits, instead of the micro-batch's targets. The
  // memory of `targets` must live until backward is done.
  Tensor forward(Pass& pass, Tensor logits, std::span<const int32_t> targets) {
    logits_ = logits;
    targets_ = targets;
    if (pass.batch->targets.empty()) return logits;
    const DType type = value_type(logits.dtype);
    statistics_ = pass.arena.take(type, logits.rows, 2);
    const ArenaScope scope(pass.arena);
    const Tensor sums = pass.arena.take(type, logits.rows, 3);
    cross_entropy_sums(logits, targets, {}, sums);
    pass.loss =
        cross_entropy(sums, targets, pass.arena.take(DType::f64, 1, logits.rows), statistics_);
    return logits;
  }

  // Overwrites the logits by pass.loss_scale * d(sum of losses)/dlogits. For a micro-batch of
  // weight 0 writes 0, because a product with 0 would keep NaNs.
  Tensor backward(Pass& pass) const {
    if (pass.weightless()) {
      zero(logits_);
      return logits_;
    }
    cross_entropy_backward(logits_, targets_, {}, statistics_, pass.loss_scale, logits_);
    return logits_;
  }

 private:
  Tensor logits_;
  std::span<const int32_t> targets_;
  Tensor statistics_;
};

}  // namespace tutti::training
