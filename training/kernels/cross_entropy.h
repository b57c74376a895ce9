// Softmax and the negative log likelihood of a target class, fused.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/later.h"
#include "training/core/tensor.h"

namespace tutti::training {

// logits: rows x classes, contiguous. losses: 1 x rows of f64, in nats. statistics: rows x 2 of
// value_type (kept for backward). Targets below 0 are ignored: neither their loss nor their
// gradient is anything but 0, whatever the logits. Returns the losses' sum, in their order, and how
// many of the others had the largest logit. Throws Error(invalid_argument) for a target that is no
// class.
Later<Loss> cross_entropy(ConstTensor logits, std::span<const int32_t> targets, Tensor losses,
                          Tensor statistics);

// scale * d(sum of losses)/dlogits = scale * (probabilities - onehot); in place is allowed.
void cross_entropy_backward(ConstTensor logits, std::span<const int32_t> targets,
                            ConstTensor statistics, double scale, Tensor logits_gradient);

}  // namespace tutti::training
