// Softmax cross-entropy in two steps. The first reads the logits of all classes, or of some of them
// (vocabulary parallelism). The second reads the sums over all classes.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/later.h"
#include "training/core/tensor.h"
#include "training/kernels/part_of.h"

namespace tutti::training {

// Writes partial sums. logits: rows x classes. sums: rows x 3 of value_type: the largest logit, the
// sum of exp(logit - largest), and the target's logit, or 0 if the target is not among these
// classes. A negative target is ignored, and its three sums are 0. Throws Error(invalid_argument)
// for a target that is not a class.
void cross_entropy_sums(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                        Tensor sums);

// Computes losses from sums over all classes. losses: 1 x rows of f64, in nats. statistics: rows x
// 2 of value_type, which cross_entropy_backward() needs. Returns the sum of the losses, in the
// order of rows, and the number of targets that were not ignored and had the largest logit.
Later<Loss> cross_entropy(ConstTensor sums, std::span<const int32_t> targets, Tensor losses,
                          Tensor statistics);

// Writes scale * d(sum of losses)/dlogits = scale * (probabilities - onehot) for contiguous logits.
// `logits_gradient` may be `logits`.
void cross_entropy_backward(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                            ConstTensor statistics, double scale, Tensor logits_gradient);

}  // namespace tutti::training
