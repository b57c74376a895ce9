// Attention of tokens that are dealt out over ranks (MicroBatch::deal): a rank's queries see keys
// that others have.
#pragma once

#include "training/core/pass.h"
#include "training/kernels/attention.h"

namespace tutti::training {

// Any number of passes may use one at once.
class AttentionOverRanks {
 public:
  virtual ~AttentionOverRanks() = default;

  // What forward keeps for backward, in the pass's arena.
  struct Saved {
    Tensor lse;  // causal_attention()'s, of its queries
    // Of other queries than this rank's, with the keys and values that they see.
    Tensor queries, keys, values, output;
  };

  // As causal_attention() and causal_attention_backward() of all tokens would give this rank's
  // rows. `heads`: the shape of these, which is of one sample; `own`: what this rank has of all
  // three. Collective among the ranks along the context axis. In a pass without a mesh what other
  // ranks have is 0.
  virtual Saved forward(Pass& pass, const AttentionShape& heads, const ConstQkv& own,
                        Tensor output) const = 0;
  virtual void backward(Pass& pass, const AttentionShape& heads, const ConstQkv& own,
                        ConstTensor output, const Saved& saved, ConstTensor output_gradient,
                        const Qkv& gradients) const = 0;

  // Memory besides the passes' that others read, with keys of so many values a token.
  virtual int64_t message_bytes(const TokenDeal& deal, int64_t key_width, DType type) const = 0;
};

}  // namespace tutti::training
