// Causal self-attention in blocks with an online softmax. It computes the scores of one block at a
// time and never stores the whole context x context matrix (Dao et al.: FlashAttention, 2022; Rabe,
// Staats: Self-attention does not need O(n^2) memory, 2021).
#pragma once

#include <cstdint>
#include <span>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/kernels/gemm.h"

namespace tutti::training {

// The sizes of an attention call. Each head of keys and values serves heads / key_heads consecutive
// heads of queries (Ainslie et al.: GQA, 2023; with one head of keys: Shazeer: Fast transformer
// decoding, 2019).
struct AttentionShape {
  int64_t samples = 0;
  int64_t context = 0;  // number of queries per sample
  int64_t heads = 0;    // number of query heads
  int64_t head_size = 0;
  int64_t key_heads = 0;  // number of key (and value) heads; 0: as many as query heads
  // For tensor parallelism, if these heads are only some of the model's heads. `group`: number of
  // query heads per key head in the whole model; 0: heads / key_heads. `before`: number of query
  // heads of the first key head that precede these heads.
  int64_t group = 0;
  int64_t before = 0;
  // Number of keys per sample in memory, which must all be finite; 0: one for each query.
  int64_t keys = 0;
  // For each query row, the index (among its sample's keys) of the first key to which the query
  // attends, and the index after the last such key. A query may therefore be anywhere among the
  // keys, or attend to none: packed documents, a sliding window (Beltagy et al.: Longformer, 2020),
  // cached keys, or keys in parts. If `starts` is empty, a query attends from its sample's first
  // key on; if `ends` is empty, up to its own key.
  std::span<const int32_t> starts;
  std::span<const int32_t> ends;
  // selects what may change the bits of the matrix products (gemm.h)
  BitsOf bits = BitsOf::strides;

  int64_t rows() const { return samples * context; }
  int64_t width() const { return heads * head_size; }
  int64_t groups() const { return key_heads == 0 ? heads : key_heads; }
  int64_t group_size() const { return group == 0 ? heads / groups() : group; }
  int64_t key_width() const { return groups() * head_size; }
  int64_t keys_in_memory() const { return keys == 0 ? context : keys; }
};

// Queries, keys and values. Heads are side by side in each row. queries: rows x width; keys and
// values: samples * keys_in_memory rows x key_width. They may be columns of wider tensors.
template <bool is_const>
struct BasicQkv {
  BasicTensor<is_const> queries, keys, values;
};
using Qkv = BasicQkv<false>;
using ConstQkv = BasicQkv<true>;

// Returns views of queries, keys and values that are packed in rows of width + 2 key_width.
template <bool is_const>
BasicQkv<is_const> split_qkv(const AttentionShape& shape, BasicTensor<is_const> all) {
  return {all.col_range(0, shape.width()), all.col_range(shape.width(), shape.key_width()),
          all.col_range(shape.width() + shape.key_width(), shape.key_width())};
}

// Computes attention. output: rows x width, of the type of the queries, or f32 if partial results
// are to be merged. lse: the logarithm of the softmax's denominator for each head and query, f32
// (f64 for f64), in samples * heads rows of `context`. A query that attends to no key has output 0
// and lse -infinity. Temporaries come from the arena and are released.
void causal_attention(const AttentionShape& shape, const ConstQkv& inputs, Tensor output,
                      Tensor lse, Arena& arena);

// Merges attention over two disjoint sets of keys. `output` and `lse`, the results for one set, are
// replaced by the results for both, given `other` and `other_lse`, the results for the other set
// (Liu, Zaharia, Abbeel: Ring attention, 2023). Both outputs have the same type.
void merge_attention(const AttentionShape& shape, ConstTensor other, ConstTensor other_lse,
                     Tensor output, Tensor lse);

// Writes the gradients of queries, keys and values (without adding to them). The gradients of keys
// and values are summed over the query heads that use them. `output` (of the queries' type) and
// `lse` are the results of forward over all keys. If keys come in parts, the gradient of the
// queries is the sum over the calls for all parts.
void causal_attention_backward(const AttentionShape& shape, const ConstQkv& inputs,
                               ConstTensor output, ConstTensor lse, ConstTensor output_gradient,
                               const Qkv& gradients, Arena& arena);

}  // namespace tutti::training
