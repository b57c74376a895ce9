// Interface of attention over tokens that are divided over ranks (MicroBatch::partition): a rank's
// queries attend to keys on other ranks.
#pragma once

#include "training/core/pass.h"
#include "training/kernels/attention.h"

namespace tutti::training {

// Computes attention to the keys of all context ranks. Any number of passes may use one object at
// once.
class AttentionOverRanks {
 public:
  virtual ~AttentionOverRanks() = default;

  // State that forward keeps for backward, in the pass's arena.
  struct Saved {
    Tensor lse;  // result of causal_attention() for the saved queries
    // Queries of other ranks that this rank computes, with the keys and values to which they
    // attend.
    Tensor queries, keys, values, output;
  };

  // Compute, for this rank's rows, what causal_attention() and causal_attention_backward() over all
  // tokens would compute. `heads`: the shape for this rank's rows, as one sample; `own`: this
  // rank's queries, keys and values. Collective among the ranks along the context axis. In a pass
  // without a mesh other ranks' data are 0.
  virtual Saved forward(Pass& pass, const AttentionShape& heads, const ConstQkv& own,
                        Tensor output) const = 0;
  virtual void backward(Pass& pass, const AttentionShape& heads, const ConstQkv& own,
                        ConstTensor output, const Saved& saved, ConstTensor output_gradient,
                        const Qkv& gradients) const = 0;

  // Returns the bytes of the buffers that other ranks read, which are outside of the passes'
  // arenas. `key_width`: values of keys per token.
  virtual int64_t message_bytes(const TokenPartition& partition, int64_t key_width,
                                DType type) const = 0;
};

}  // namespace tutti::training
