// Attention of tokens that are dealt out over the context axis: each rank gets all tokens of some
// of the heads, computes these as if it were alone, and sends each token's output back (Jacobs et
// al.: DeepSpeed Ulysses, 2023). All-to-alls, each way one:
//
//             heads 0 1 2 3                      0 1                  2 3
//   rank 0    [ tokens 0, 3 ]   --q, k, v-->   [ all ]  rank 0      [ all ]  rank 1
//   rank 1    [ tokens 1, 2 ]   <--output---
//
// Heads need not come out even: a rank has one more than another, or none. A head of keys goes to
// each rank that has a head of its queries.
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
  int64_t message_bytes(const TokenDeal&, int64_t, DType) const override { return 0; }
};

}  // namespace tutti::training
