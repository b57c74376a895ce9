// Causal self-attention in blocks with an online softmax: the scores of a block at a time, never
// the whole context x context matrix (Dao et al.: FlashAttention, 2022; Rabe, Staats:
// Self-attention does not need O(n^2) memory, 2021).
#pragma once

#include <cstdint>
#include <span>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/kernels/gemm.h"

namespace tutti::training {

// Each head of keys and values serves heads / key_heads heads of queries, side by side (Ainslie et
// al.: GQA, 2023; with one head of keys: Shazeer: Fast transformer decoding, 2019).
struct AttentionShape {
  int64_t samples = 0;
  int64_t context = 0;  // queries of each sample
  int64_t heads = 0;    // of queries
  int64_t head_size = 0;
  int64_t key_heads = 0;  // of keys, and of values; 0: as many as of queries
  // Where the heads here are some of a model's: how many of queries a head of keys serves in it,
  // and how many of those of the first one lie before the heads here. 0: heads / key_heads.
  int64_t group = 0;
  int64_t before = 0;
  // Of each sample that are in memory, all of them finite; 0: one for each query.
  int64_t keys = 0;
  // By query row: the first of its sample's keys that it sees, and the one after the last. Queries
  // may so lie anywhere among the keys, or see none of them: documents one after the other in a
  // sample, a window that slides (Beltagy et al.: Longformer, 2020), keys of earlier calls, or keys
  // that come in parts. Empty: the first key; the one after the query's own.
  std::span<const int32_t> starts;
  std::span<const int32_t> ends;
  BitsOf bits = BitsOf::strides;  // of its products

  int64_t rows() const { return samples * context; }
  int64_t width() const { return heads * head_size; }
  int64_t groups() const { return key_heads == 0 ? heads : key_heads; }
  int64_t group_size() const { return group == 0 ? heads / groups() : group; }
  int64_t key_width() const { return groups() * head_size; }
  int64_t keys_in_memory() const { return keys == 0 ? context : keys; }
};

// Heads lie side by side in each. queries: rows x width; keys and values: samples * keys_in_memory
// rows x key_width. They may be columns of wider tensors.
template <bool is_const>
struct BasicQkv {
  BasicTensor<is_const> queries, keys, values;
};
using Qkv = BasicQkv<false>;
using ConstQkv = BasicQkv<true>;

// The three of them, where they lie side by side in rows of width + 2 key_width.
template <bool is_const>
BasicQkv<is_const> split_qkv(const AttentionShape& shape, BasicTensor<is_const> all) {
  return {all.col_range(0, shape.width()), all.col_range(shape.width(), shape.key_width()),
          all.col_range(shape.width() + shape.key_width(), shape.key_width())};
}

// output: rows x width, of the type of the queries or, so that parts may be merged, in f32. lse:
// one f32 (f64 for f64) for each head and query: the logarithm of the softmax's denominator;
// samples * heads rows of `context`. What sees no key has an output of 0 and a logarithm of
// -infinity. Temporaries come from the arena and are given back.
void causal_attention(const AttentionShape& shape, const ConstQkv& inputs, Tensor output,
                      Tensor lse, Arena& arena);

// `output` and `lse` of some keys become those of these and other keys, of which `other` and
// `other_lse` are (Liu, Zaharia, Abbeel: Ring attention, 2023). Outputs are of one type.
void merge_attention(const AttentionShape& shape, ConstTensor other, ConstTensor other_lse,
                     Tensor output, Tensor lse);

// Gradients are written, not added to: those of keys and values are summed over the heads of
// queries that they serve. `output` (of the queries' type) and `lse` are what the forward pass
// gave, of all keys: where keys come in parts, so do the gradients of queries, whose sum is theirs.
void causal_attention_backward(const AttentionShape& shape, const ConstQkv& inputs,
                               ConstTensor output, ConstTensor lse, ConstTensor output_gradient,
                               const Qkv& gradients, Arena& arena);

}  // namespace tutti::training
