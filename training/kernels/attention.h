// Causal self-attention in blocks with an online softmax: the scores of a block at a time, never
// the whole context x context matrix (Dao et al.: FlashAttention, 2022; Rabe, Staats:
// Self-attention does not need O(n^2) memory, 2021).
#pragma once

#include "training/arena.h"
#include "training/tensor.h"

namespace tutti::training {

struct AttentionShape {
  int64_t samples = 0;
  int64_t context = 0;
  int64_t heads = 0;
  int64_t head_size = 0;

  int64_t rows() const { return samples * context; }
  int64_t width() const { return heads * head_size; }
};

// qkv: rows x 3 width (queries, keys, values; heads side by side in each). output: rows x width.
// lse: one f32 (f64 for f64) for each head and row: the logarithm of the softmax's denominator;
// samples * heads rows of `context`. Temporaries come from the arena and are given back.
void causal_attention(const AttentionShape& shape, ConstTensor qkv, Tensor output, Tensor lse,
                      Arena& arena);

// qkv_gradient is written, not added to. `output` is what the forward pass gave.
void causal_attention_backward(const AttentionShape& shape, ConstTensor qkv, ConstTensor output,
                               ConstTensor lse, ConstTensor output_gradient, Tensor qkv_gradient,
                               Arena& arena);

}  // namespace tutti::training
