// Softmax and the negative log likelihood of a target class, in two halves: one reads logits, of
// all classes or of some (vocabulary parallelism), the other what all classes' come to.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/later.h"
#include "training/core/tensor.h"
#include "training/kernels/part_of.h"

namespace tutti::training {

// logits: rows x classes. sums: rows x 3 of value_type: the largest logit, the sum of
// exp(logit - largest), and the target's logit, 0 where it is not among these classes. Targets
// below 0 are ignored: all three are 0, whatever the logits. Throws Error(invalid_argument) for a
// target that is no class.
void cross_entropy_sums(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                        Tensor sums);

// sums: of all classes. losses: 1 x rows of f64, in nats. statistics: rows x 2 of value_type (kept
// for backward). Returns the losses' sum, in their order, and how many of the targets that are not
// ignored had the largest logit.
Later<Loss> cross_entropy(ConstTensor sums, std::span<const int32_t> targets, Tensor losses,
                          Tensor statistics);

// scale * d(sum of losses)/dlogits = scale * (probabilities - onehot), of contiguous logits; in
// place is allowed.
void cross_entropy_backward(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                            ConstTensor statistics, double scale, Tensor logits_gradient);

}  // namespace tutti::training
