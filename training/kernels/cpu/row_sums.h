// Deterministic sums over the rows of a matrix. Each chunk of kSummedRows rows is summed in order,
// then the chunks' sums are added in order. The chunks, and therefore the bits, depend on the shape
// alone.
#pragma once

#include <cstdint>
#include <cstring>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training {

inline constexpr int64_t kSummedRows = 256;

// Returns `width` sums of `type` (f32 or f64) in memory from the arena. Calls add(first, count,
// sums), which adds rows [first, first + count) to `sums`. The sums start at zero.
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
