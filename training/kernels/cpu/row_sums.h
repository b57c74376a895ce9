// Sums over the rows of a matrix: in chunks of so many rows, each by itself in the rows' order, and
// then the chunks' sums one after the other. Chunks follow from the shape alone, so do the bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training {

inline constexpr int64_t kSummedRows = 256;

// `width` sums of `type` (f32 or f64), from the arena. add(first, count, sums) adds those of rows
// [first, first + count) to its zeroed sums.
template <typename Add>
Tensor sum_over_rows(int64_t rows, DType type, int64_t width, Arena& arena, Add&& add) {
  const int64_t chunks = rows <= kSummedRows ? 1 : (rows + kSummedRows - 1) / kSummedRows;
  const Tensor sums = arena.take(type, chunks, width);
  if (sums.empty()) return sums;
  std::memset(sums.data, 0, sums.bytes());
  parallel_ranges(rows, kSummedRows, [&](int64_t first, int64_t count) {
    add(first, count, static_cast<void*>(sums.at(first / kSummedRows, 0)));
  });
  parallel_ranges(width, kSummedRows, [&](int64_t first, int64_t count) {
    const Tensor total = sums.col_range(first, count);
    kernels::loops(type).add_column_sums(total.at(1, 0), total.data, chunks - 1, count, width);
  });
  return sums.row_range(0, 1);
}

}  // namespace tutti::training
