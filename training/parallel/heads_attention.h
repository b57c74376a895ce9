// Attention over tokens that are divided over the context axis: each rank gets all tokens of some
// heads, computes these heads as if it were alone, and sends each token's output back (Jacobs et
// al.: DeepSpeed Ulysses, 2023). There is one all-to-all in each direction:
//
//             heads 0 1 2 3                      0 1                  2 3
//   rank 0    [ tokens 0, 3 ]   --q, k, v-->   [ all ]  rank 0      [ all ]  rank 1
//   rank 1    [ tokens 1, 2 ]   <--output---
//
// Heads may be distributed unevenly: a rank may have one head more than another rank, or none. A
// key head goes to each rank that has one of its query heads.
#pragma once

#include "training/modules/attention_over_ranks.h"

namespace tutti::training {

class HeadsAttention : public AttentionOverRanks {
 public:
  Saved forward(Pass& pass, const AttentionShape& heads, const ConstQkv& own,
                Tensor output) const override;
  void backward(Pass& pass, const AttentionShape& heads, const ConstQkv& own, ConstTensor output,
                const Saved& saved, ConstTensor output_gradient,
                const Qkv& gradients) const override;
  int64_t message_bytes(const TokenPartition&, int64_t, DType) const override { return 0; }
};

}  // namespace tutti::training
