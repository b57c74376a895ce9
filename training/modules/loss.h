// What the last unit of a classifier or language model does with its logits: softmax cross-entropy
// of the micro-batch's targets, into the pass.
#pragma once

#include <span>

#include "training/core/pass.h"
#include "training/kernels/cross_entropy.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

// Holds what backward needs: one object for each micro-batch in flight.
class LossPart {
 public:
  // Sets pass.loss, if the micro-batch has targets. Returns the logits, which backward overwrites.
  Tensor forward(Pass& pass, Tensor logits) { return forward(pass, logits, pass.batch->targets); }
  // With these targets in place of the micro-batch's, one for each row of the logits, in memory
  // that stays until backward is done.
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

  // pass.loss_scale * d(sum of losses)/dlogits, in the logits' place. Of a micro-batch of weight 0
  // it is 0, not 0 times what might be a NaN.
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
