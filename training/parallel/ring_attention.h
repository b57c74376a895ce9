// Attention of tokens that are dealt out over the context axis: each rank's keys and values go to
// the other ranks one after the other, while these compute with those that came before (Liu,
// Zaharia, Abbeel: Ring attention with blockwise transformers, 2023).
//
//   step        0      1      2      3          at step j rank r has the keys of rank r - j; what
//   rank 0    own q0 | k3   | k2   | k1         its queries do not see of them is not sent
//   rank 1    own q1 | k0   | k3   | k2
//
// A rank holds its own keys and those of two others at most: one that it computes with and one that
// is on its way. Parts of the output are merged by their log-sum-exps, in f32. Backward sends keys
// and values again, and each part of their gradients, in f32, to the rank that they belong to.
#pragma once

#include "training/modules/attention_over_ranks.h"

namespace tutti::training {

class RingAttention : public AttentionOverRanks {
 public:
  Saved forward(Pass& pass, const AttentionShape& heads, const ConstQkv& own,
                Tensor output) const override;
  void backward(Pass& pass, const AttentionShape& heads, const ConstQkv& own, ConstTensor output,
                const Saved& saved, ConstTensor output_gradient,
                const Qkv& gradients) const override;
  int64_t message_bytes(const TokenDeal& deal, int64_t key_width, DType type) const override;
};

}  // namespace tutti::training
