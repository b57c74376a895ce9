#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training::cpu {
namespace {

constexpr int64_t kBlock = 128;  // queries or keys per block: enough to reach GEMM's speed

struct KeyRange {
  int64_t first = 0;
  int64_t end = 0;
};

// One key head of one sample, with the query heads that it serves.
struct Group {
  const AttentionShape& shape;
  int64_t sample;
  int64_t key_head;

  int64_t first_head() const { return bound(key_head); }
  int64_t end_head() const { return bound(key_head + 1); }

  int64_t bound(int64_t number) const {
    return std::clamp<int64_t>(number * shape.group_size() - shape.before, 0, shape.heads);
  }
  template <bool is_const>
  BasicTensor<is_const> of_queries(BasicTensor<is_const> all, int64_t head) const {
    return all.row_range(sample * shape.context, shape.context)
        .col_range(head * shape.head_size, shape.head_size);
  }
  template <bool is_const>
  BasicTensor<is_const> of_keys(BasicTensor<is_const> all) const {
    return all.row_range(sample * shape.keys_in_memory(), shape.keys_in_memory())
        .col_range(key_head * shape.head_size, shape.head_size);
  }
  // Returns the index of a query's value in lse.
  int64_t row_of(int64_t head, int64_t query) const {
    return (sample * shape.heads + head) * shape.context + query;
  }
  // Return the bounds of this query, which are followed by the next queries' bounds; null if the
  // shape has no bounds.
  const int32_t* starts(int64_t query) const { return from(shape.starts, query); }
  const int32_t* ends(int64_t query) const { return from(shape.ends, query); }
  const int32_t* from(std::span<const int32_t> bounds, int64_t query) const {
    if (bounds.empty()) return nullptr;
    return &bounds[static_cast<size_t>(sample * shape.context + query)];
  }
  // Returns a range that contains all keys to which the queries [query, query + rows) attend.
  KeyRange seen(int64_t query, int64_t rows) const {
    const int32_t* const first = starts(query);
    const int32_t* const last = ends(query);
    const int64_t end = last == nullptr ? query + rows : *std::max_element(last, last + rows);
    return {first == nullptr ? 0 : std::max(0, *std::min_element(first, first + rows)),
            std::min(end, shape.keys_in_memory())};
  }
  // Returns the bounds of the queries from `query` on, in a block of keys that begins at `key`.
  kernels::Visible visible(int64_t query, int64_t key) const {
    return {query + 1 - key, starts(query), ends(query), key};
  }
};

// Calls body(group) for each group, in any order, on the threads of the pool.
template <typename Body>
void for_each_group(const AttentionShape& shape, Body&& body) {
  parallel_for(shape.samples * shape.groups(), [&](int64_t index) {
    body(Group{shape, index / shape.groups(), index % shape.groups()});
  });
}

// Temporaries for each thread that computes groups.
class Scratch {
 public:
  Scratch(Arena& arena, DType dtype, int64_t rows, int64_t cols)
      : all_(arena.take(dtype, threads_here() * rows, cols)), rows_(rows) {}
  // Returns the calling thread's part.
  Tensor own() const { return all_.row_range(ThreadPool::thread_index() * rows_, rows_); }
  // Returns the beginning of the calling thread's part as a rows x cols tensor.
  Tensor own(int64_t rows, int64_t cols) const {
    return tensor_at(own().data, all_.dtype, rows, cols);
  }

 private:
  Tensor all_;
  int64_t rows_;
};

// Calls body(begin, size) for the blocks that contain elements [first, end). Blocks begin at
// multiples of kBlock, and only the last block in memory is smaller than kBlock. Whole blocks are
// worthwhile, because masked keys cost little and products have few different shapes.
template <typename Body>
void for_each_block(int64_t first, int64_t end, int64_t in_memory, Body&& body) {
  for (int64_t at = first / kBlock * kBlock; at < end; at += kBlock) {
    body(at, std::min(kBlock, in_memory - at));
  }
}

void fill(Tensor tensor, double value) {
  if (tensor.dtype == DType::f64) {
    std::ranges::fill(tensor.values<double>(), value);
  } else {
    std::ranges::fill(tensor.values<float>(), static_cast<float>(value));
  }
}

// Converts a contiguous rows x cols block of f32 or f64 into rows of `to`.
void store_values(ConstTensor from, Tensor to) {
  const kernels::Loops& loops = kernels::loops(to.dtype);
  for (int64_t row = 0; row < from.rows; ++row) {
    loops.from_values(from.at(row, 0), to.at(row, 0), from.cols);
  }
}

// Calls gemm() with a given BitsOf.
struct Multiply {
  BitsOf bits;
  void operator()(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b,
                  Tensor c, GemmMode mode = GemmMode::overwrite) const {
    cpu::gemm(a, transpose_a, b, transpose_b, c, mode, {}, bits);
  }
};

double scale_of(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_size));
}

bool are_keys(const AttentionShape& shape, ConstTensor keys, DType type) {
  return keys.rows == shape.samples * shape.keys_in_memory() && keys.cols == shape.key_width() &&
         keys.dtype == type;
}

bool fit(const AttentionShape& shape, const ConstQkv& qkv) {
  const int64_t served = shape.groups() * shape.group_size() - shape.before;
  const bool grouped = shape.group == 0 ? served == shape.heads
                                        : shape.before < shape.group && served >= shape.heads &&
                                              served - shape.heads < shape.group;
  return shape.groups() > 0 && grouped && shape.keys_in_memory() > 0 &&
         qkv.queries.rows == shape.rows() && qkv.queries.cols == shape.width() &&
         are_keys(shape, qkv.keys, qkv.queries.dtype) &&
         are_keys(shape, qkv.values, qkv.queries.dtype) &&
         (shape.starts.empty() || std::ssize(shape.starts) == shape.rows()) &&
         (shape.ends.empty() ? shape.keys_in_memory() >= shape.context
                             : std::ssize(shape.ends) == shape.rows());
}

bool are_results(const AttentionShape& shape, ConstTensor output, ConstTensor lse) {
  return output.rows == shape.rows() && output.cols == shape.width() &&
         lse.size() == shape.rows() * shape.heads && lse.dtype == value_type(output.dtype);
}

void check(const AttentionShape& shape, const ConstQkv& qkv, ConstTensor output, ConstTensor lse) {
  const DType type = qkv.queries.dtype;
  require_shapes(fit(shape, qkv) && are_results(shape, output, lse) &&
                     (type == output.dtype || value_type(type) == output.dtype),
                 "causal_attention");
}

}  // namespace

void causal_attention(const AttentionShape& shape, const ConstQkv& inputs, Tensor output,
                      Tensor lse, Arena& arena) {
  check(shape, inputs, output, lse);
  const ArenaScope scope(arena);
  const DType type = inputs.queries.dtype;
  const DType wide = value_type(type);
  const int64_t most_rows = std::min(kBlock, shape.context);
  const int64_t most_keys = std::min(kBlock, shape.keys_in_memory());
  const kernels::Loops& loops = kernels::loops(type);
  const kernels::Loops& results = kernels::loops(output.dtype);
  const Scratch score_memory(arena, wide, most_rows, most_keys);
  const Scratch weight_memory(arena, type, most_rows, most_keys);
  const Scratch sum_memory(arena, wide, most_rows, shape.head_size);
  const Scratch maximum_memory(arena, wide, 1, most_rows);
  const Scratch total_memory(arena, wide, 1, most_rows);
  const Multiply multiply{shape.bits};
  const auto attend = [&](const Group& group, int64_t head, int64_t q, int64_t rows) {
    const ConstTensor queries = group.of_queries(inputs.queries, head).row_range(q, rows);
    const ConstTensor keys = group.of_keys(inputs.keys), values = group.of_keys(inputs.values);
    const Tensor attended = sum_memory.own(rows, shape.head_size);
    const Tensor maxima = maximum_memory.own(), sums = total_memory.own();
    cpu::zero(attended);
    fill(maxima, -std::numeric_limits<double>::infinity());
    cpu::zero(sums);
    const KeyRange seen = group.seen(q, rows);
    for_each_block(seen.first, seen.end, keys.rows, [&](int64_t k, int64_t cols) {
      const Tensor scores = score_memory.own(rows, cols);
      const Tensor weights = weight_memory.own(rows, cols);
      multiply(queries, Transpose::no, keys.row_range(k, cols), Transpose::yes, scores);
      loops.attention_softmax(scores.data, weights.data, rows, cols, group.visible(q, k),
                              scale_of(shape), maxima.data, sums.data, attended.data,
                              shape.head_size);
      multiply(weights, Transpose::no, values.row_range(k, cols), Transpose::no, attended,
               GemmMode::accumulate);
    });
    const Tensor target = group.of_queries(output, head).row_range(q, rows);
    results.attention_finish(attended.data, maxima.data, sums.data, target.data, target.stride,
                             lse.data + group.row_of(head, q) * size_of(wide), rows,
                             shape.head_size);
  };
  for_each_group(shape, [&](const Group& group) {
    for (int64_t head = group.first_head(); head < group.end_head(); ++head) {
      for_each_block(0, shape.context, shape.context,
                     [&](int64_t q, int64_t rows) { attend(group, head, q, rows); });
    }
  });
}

void merge_attention(const AttentionShape& shape, ConstTensor other, ConstTensor other_lse,
                     Tensor output, Tensor lse) {
  require_shapes(are_results(shape, output, lse) && are_results(shape, other, other_lse) &&
                     output.dtype == other.dtype,
                 "merge_attention");
  const kernels::Loops& loops = kernels::loops(output.dtype);
  parallel_for(shape.samples * shape.heads, [&](int64_t index) {
    const int64_t row = index / shape.heads * shape.context;
    const int64_t col = index % shape.heads * shape.head_size;
    const auto offset = static_cast<size_t>(index * shape.context) * size_of(lse.dtype);
    loops.attention_merge(other.at(row, col), other.stride, other_lse.data + offset,
                          output.at(row, col), output.stride, lse.data + offset, shape.context,
                          shape.head_size);
  });
}

void causal_attention_backward(const AttentionShape& shape, const ConstQkv& inputs,
                               ConstTensor output, ConstTensor lse, ConstTensor output_gradient,
                               const Qkv& gradients, Arena& arena) {
  check(shape, inputs, output, lse);
  require_shapes(output.dtype == inputs.queries.dtype && output_gradient.stride == output.stride &&
                     fit(shape, {gradients.queries, gradients.keys, gradients.values}),
                 "causal_attention_backward");
  const ArenaScope scope(arena);
  const DType type = output.dtype;
  const DType wide = value_type(type);
  const int64_t keys_there = shape.keys_in_memory();
  const int64_t most_rows = std::min(kBlock, shape.context);
  const int64_t most_keys = std::min(kBlock, keys_there);
  const kernels::Loops& loops = kernels::loops(type);
  const Scratch score_memory(arena, wide, most_rows, most_keys);
  const Scratch weight_memory(arena, type, most_rows, most_keys);
  const Scratch gradient_memory(arena, type, most_rows, most_keys);
  const Scratch delta_memory(arena, wide, 1, shape.context);
  const Scratch dq_memory(arena, wide, shape.context, shape.head_size);
  const Scratch dk_memory(arena, wide, keys_there, shape.head_size);
  const Scratch dv_memory(arena, wide, keys_there, shape.head_size);
  const Multiply multiply{shape.bits};
  // Adds the gradients that come from one block of queries and one block of keys.
  const auto add_block = [&](const Group& group, int64_t head, int64_t q, int64_t rows, int64_t k,
                             int64_t cols) {
    const Tensor scores = score_memory.own(rows, cols);
    const Tensor weights = weight_memory.own(rows, cols);
    const Tensor dscores = gradient_memory.own(rows, cols);
    const Tensor delta = delta_memory.own(), dq = dq_memory.own();
    const Tensor dk = dk_memory.own(), dv = dv_memory.own();
    const ConstTensor queries = group.of_queries(inputs.queries, head).row_range(q, rows);
    const ConstTensor dy = group.of_queries(output_gradient, head).row_range(q, rows);
    const ConstTensor keys = group.of_keys(inputs.keys).row_range(k, cols);
    const ConstTensor values = group.of_keys(inputs.values).row_range(k, cols);
    multiply(queries, Transpose::no, keys, Transpose::yes, scores);
    loops.attention_recompute(scores.data, lse.data + group.row_of(head, q) * size_of(wide),
                              weights.data, rows, cols, group.visible(q, k), scale_of(shape));
    multiply(weights, Transpose::yes, dy, Transpose::no, dv.row_range(k, cols),
             GemmMode::accumulate);
    multiply(dy, Transpose::no, values, Transpose::yes, scores);
    loops.attention_score_gradient(weights.data, scores.data, delta.at(0, q), dscores.data, rows,
                                   cols, scale_of(shape));
    multiply(dscores, Transpose::no, keys, Transpose::no, dq.row_range(q, rows),
             GemmMode::accumulate);
    multiply(dscores, Transpose::yes, queries, Transpose::no, dk.row_range(k, cols),
             GemmMode::accumulate);
  };
  for_each_group(shape, [&](const Group& group) {
    const Tensor delta = delta_memory.own(), dq = dq_memory.own();
    const Tensor dk = dk_memory.own(), dv = dv_memory.own();
    cpu::zero(dk);
    cpu::zero(dv);
    std::vector<KeyRange> seen;  // the range of keys for each block of queries
    for_each_block(0, shape.context, shape.context,
                   [&](int64_t q, int64_t rows) { seen.push_back(group.seen(q, rows)); });
    for (int64_t head = group.first_head(); head < group.end_head(); ++head) {
      const ConstTensor dy = group.of_queries(output_gradient, head);
      loops.attention_delta(group.of_queries(output, head).data, dy.data, dy.stride, delta.data,
                            shape.context, shape.head_size);
      cpu::zero(dq);
      for_each_block(0, keys_there, keys_there, [&](int64_t k, int64_t cols) {
        for_each_block(0, shape.context, shape.context, [&](int64_t q, int64_t rows) {
          const KeyRange its = seen[static_cast<size_t>(q / kBlock)];
          if (its.first < k + cols && k < its.end) add_block(group, head, q, rows, k, cols);
        });
      });
      store_values(dq, group.of_queries(gradients.queries, head));
    }
    store_values(dk, group.of_keys(gradients.keys));
    store_values(dv, group.of_keys(gradients.values));
  });
}

}  // namespace tutti::training::cpu
