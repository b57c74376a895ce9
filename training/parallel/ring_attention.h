// Attention over tokens that are divided over the context axis. In each step, a rank sends its keys
// and values to another rank, one place further along the ring than in the previous step, and
// meanwhile computes with the keys that arrived in the previous step (after Liu, Zaharia, Abbeel:
// Ring attention with blockwise transformers, 2023).
//
//   step        0      1      2      3          at step j rank r has the keys of rank r - j that
//   rank 0    own q0 | k3   | k2   | k1         its queries attend to; others are not sent
//   rank 1    own q1 | k0   | k3   | k2
//
// A rank holds its own keys and the keys of at most two other ranks: one set in use and one in
// flight. Partial outputs are merged by their log-sum-exps, in f32. Backward sends keys and values
// again, and returns each part of their gradients, in f32, to the rank that owns them.
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
  int64_t message_bytes(const TokenPartition& partition, int64_t key_width,
                        DType type) const override;
};

}  // namespace tutti::training
