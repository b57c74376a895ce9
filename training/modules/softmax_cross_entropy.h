// Softmax and the negative log likelihood of a target byte, fused.
#pragma once

#include "training/module.h"

namespace tutti::training {

class SoftmaxCrossEntropy {
 public:
  // logits: samples x classes; one target, a class, per sample; both alive until backward().
  // Returns the sum of the samples' losses in nats, added up in sample order in double precision.
  double forward(ConstMatrix logits, std::span<const uint8_t> targets);
  // scale * d(sum of losses)/dlogits = scale * (probabilities - onehot). At most once per forward;
  // valid until the next forward.
  ConstMatrix backward(float scale);

 private:
  std::span<const uint8_t> targets_;
  MatrixBuffer probabilities_;
};

}  // namespace tutti::training
