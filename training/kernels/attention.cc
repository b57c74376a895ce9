#include "training/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"
#include "training/kernels/loops.h"
#include "training/thread_pool.h"

namespace tutti::training {
namespace {

constexpr int64_t kBlock = 128;  // queries or keys: large enough for GEMM's speed

// One head of one sample.
struct Head {
  const AttentionShape& shape;
  int64_t first_row;
  int64_t head;

  // which: 0 queries, 1 keys, 2 values; of a tensor rows x 3 width.
  template <bool is_const>
  BasicTensor<is_const> part(BasicTensor<is_const> qkv, int which) const {
    return qkv.row_range(first_row, shape.context)
        .col_range(which * shape.width() + head * shape.head_size, shape.head_size);
  }
  template <bool is_const>
  BasicTensor<is_const> of(BasicTensor<is_const> rows) const {
    return rows.row_range(first_row, shape.context)
        .col_range(head * shape.head_size, shape.head_size);
  }
};

// Heads of samples are what threads share: body(head, its number) for each, in any order.
template <typename Body>
void for_each_head(const AttentionShape& shape, Body&& body) {
  parallel_for(shape.samples * shape.heads, [&](int64_t index) {
    body(Head{shape, index / shape.heads * shape.context, index % shape.heads}, index);
  });
}

// Temporaries for each of the threads that compute heads.
class Scratch {
 public:
  Scratch(Arena& arena, DType dtype, int64_t rows, int64_t cols)
      : all_(arena.take(dtype, threads_here() * rows, cols)), rows_(rows) {}
  // The calling thread's.
  Tensor own() const { return all_.row_range(ThreadPool::thread_index() * rows_, rows_); }
  // The same memory as another matrix.
  Tensor own(int64_t rows, int64_t cols) const {
    return tensor_at(own().data, all_.dtype, rows, cols);
  }

 private:
  Tensor all_;
  int64_t rows_;
};

template <typename Body>
void for_each_block(int64_t count, Body&& body) {
  for (int64_t first = 0; first < count; first += kBlock) {
    body(first, std::min(kBlock, count - first));
  }
}

void fill(Tensor tensor, double value) {
  if (tensor.dtype == DType::f64) {
    std::ranges::fill(tensor.values<double>(), value);
  } else {
    std::ranges::fill(tensor.values<float>(), static_cast<float>(value));
  }
}

// A contiguous rows x cols block of f32 or f64 into rows of `to`.
void store_values(ConstTensor from, Tensor to) {
  const kernels::Loops& loops = kernels::loops(to.dtype);
  for (int64_t row = 0; row < from.rows; ++row) {
    loops.from_values(from.at(row, 0), to.at(row, 0), from.cols);
  }
}

double scale_of(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_size));
}

void check(const AttentionShape& shape, ConstTensor qkv, ConstTensor output, ConstTensor lse) {
  require_shapes(qkv.rows == shape.rows() && qkv.cols == 3 * shape.width() &&
                     output.rows == shape.rows() && output.cols == shape.width() &&
                     lse.size() == shape.rows() * shape.heads && qkv.dtype == output.dtype &&
                     lse.dtype == value_type(qkv.dtype),
                 "causal_attention");
}

}  // namespace

void causal_attention(const AttentionShape& shape, ConstTensor qkv, Tensor output, Tensor lse,
                      Arena& arena) {
  check(shape, qkv, output, lse);
  const ArenaScope scope(arena);
  const DType type = qkv.dtype;
  const DType wide = value_type(type);
  const int64_t block = std::min(kBlock, shape.context);
  const kernels::Loops& loops = kernels::loops(type);
  const Scratch score_memory(arena, wide, block, block);
  const Scratch weight_memory(arena, type, block, block);
  const Scratch sum_memory(arena, wide, block, shape.head_size);
  const Scratch maximum_memory(arena, wide, 1, block);
  const Scratch total_memory(arena, wide, 1, block);
  for_each_head(shape, [&](const Head& head, int64_t index) {
    const Tensor maxima = maximum_memory.own(), sums = total_memory.own();
    const ConstTensor queries = head.part(qkv, 0), keys = head.part(qkv, 1);
    const ConstTensor values = head.part(qkv, 2);
    for_each_block(shape.context, [&](int64_t q, int64_t rows) {
      const Tensor attended = sum_memory.own(rows, shape.head_size);
      fill(attended, 0);
      fill(maxima, -std::numeric_limits<double>::infinity());
      fill(sums, 0);
      for_each_block(q + rows, [&](int64_t k, int64_t cols) {
        const Tensor scores = score_memory.own(rows, cols);
        const Tensor weights = weight_memory.own(rows, cols);
        gemm(queries.row_range(q, rows), Transpose::no, keys.row_range(k, cols), Transpose::yes,
             scores);
        loops.attention_softmax(scores.data, weights.data, rows, cols, q - k + 1, scale_of(shape),
                                maxima.data, sums.data, attended.data, shape.head_size);
        gemm(weights, Transpose::no, values.row_range(k, cols), Transpose::no, attended,
             GemmMode::accumulate);
      });
      const Tensor target = head.of(output).row_range(q, rows);
      loops.attention_finish(attended.data, maxima.data, sums.data, target.data, target.stride,
                             lse.data + (index * shape.context + q) * size_of(wide), rows,
                             shape.head_size);
    });
  });
}

void causal_attention_backward(const AttentionShape& shape, ConstTensor qkv, ConstTensor output,
                               ConstTensor lse, ConstTensor output_gradient, Tensor qkv_gradient,
                               Arena& arena) {
  check(shape, qkv, output, lse);
  require_shapes(output_gradient.stride == output.stride && qkv_gradient.cols == qkv.cols,
                 "causal_attention_backward");
  const ArenaScope scope(arena);
  const DType type = qkv.dtype;
  const DType wide = value_type(type);
  const int64_t block = std::min(kBlock, shape.context);
  const kernels::Loops& loops = kernels::loops(type);
  const Scratch score_memory(arena, wide, block, block);
  const Scratch weight_memory(arena, type, block, block);
  const Scratch gradient_memory(arena, type, block, block);
  const Scratch delta_memory(arena, wide, 1, shape.context);
  const Scratch dq_memory(arena, wide, shape.context, shape.head_size);
  const Scratch dk_memory(arena, wide, block, shape.head_size);
  const Scratch dv_memory(arena, wide, block, shape.head_size);
  for_each_head(shape, [&](const Head& head, int64_t index) {
    const Tensor delta = delta_memory.own(), dq = dq_memory.own();
    const ConstTensor queries = head.part(qkv, 0), keys = head.part(qkv, 1);
    const ConstTensor values = head.part(qkv, 2), dy = head.of(output_gradient);
    loops.attention_delta(head.of(output).data, dy.data, dy.stride, delta.data, shape.context,
                          shape.head_size);
    fill(dq, 0);
    for_each_block(shape.context, [&](int64_t k, int64_t cols) {
      const Tensor dk = dk_memory.own(cols, shape.head_size);
      const Tensor dv = dv_memory.own(cols, shape.head_size);
      fill(dk, 0);
      fill(dv, 0);
      for_each_block(shape.context - k, [&](int64_t after, int64_t rows) {
        const int64_t q = k + after;
        const Tensor scores = score_memory.own(rows, cols);
        const Tensor weights = weight_memory.own(rows, cols);
        const Tensor dscores = gradient_memory.own(rows, cols);
        const ConstTensor q_rows = queries.row_range(q, rows), k_rows = keys.row_range(k, cols);
        gemm(q_rows, Transpose::no, k_rows, Transpose::yes, scores);
        loops.attention_recompute(scores.data,
                                  lse.data + (index * shape.context + q) * size_of(wide),
                                  weights.data, rows, cols, q - k + 1, scale_of(shape));
        gemm(weights, Transpose::yes, dy.row_range(q, rows), Transpose::no, dv,
             GemmMode::accumulate);
        gemm(dy.row_range(q, rows), Transpose::no, values.row_range(k, cols), Transpose::yes,
             scores);
        loops.attention_score_gradient(weights.data, scores.data, delta.at(0, q), dscores.data,
                                       rows, cols, scale_of(shape));
        gemm(dscores, Transpose::no, k_rows, Transpose::no, dq.row_range(q, rows),
             GemmMode::accumulate);
        gemm(dscores, Transpose::yes, q_rows, Transpose::no, dk, GemmMode::accumulate);
      });
      store_values(dk, head.part(qkv_gradient, 1).row_range(k, cols));
      store_values(dv, head.part(qkv_gradient, 2).row_range(k, cols));
    });
    store_values(dq, head.part(qkv_gradient, 0));
  });
}

}  // namespace tutti::training
