#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training::cpu {

void embedding(ConstTensor table, PartOf rows, std::span<const int32_t> indices, Tensor output) {
  const int64_t all = rows.all_of(table.rows);
  require_shapes(output.rows == std::ssize(indices) && output.cols == table.cols &&
                     table.dtype == output.dtype,
                 "embedding");
  for (const int32_t index : indices) {
    if (index >= 0 && index < all) continue;
    throw Error(ErrorCode::invalid_argument,
                cat("the data has the token ", index, ", but the model has only ", all),
                {.cause = "the model was created for another tokenizer",
                 .remedy = "use a model with as many tokens (--vocabulary) as the data has"});
  }
  const size_t bytes = static_cast<size_t>(table.cols) * size_of(table.dtype);
  parallel_rows(output.rows, output.cols, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      const int64_t here = indices[static_cast<size_t>(row)] - rows.first;
      if (here >= 0 && here < table.rows) {
        std::memcpy(output.at(row, 0), table.at(here, 0), bytes);
      } else {
        std::memset(output.at(row, 0), 0, bytes);
      }
    }
  });
}

void embedding_backward(ConstTensor dy, std::span<const int32_t> indices, PartOf rows,
                        Tensor table_gradient, Arena& arena) {
  constexpr int64_t kRowsOfAPart = 8;  // rows of the table per part
  const ArenaScope scope(arena);
  const auto index_of = [&](int32_t row) { return indices[static_cast<size_t>(row)] - rows.first; };
  std::vector<int32_t> order(indices.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int32_t row) {
    return index_of(row) < 0 || index_of(row) >= table_gradient.rows;
  });
  std::ranges::stable_sort(order, {}, index_of);
  // for each used row of the table, the index of its first element in `order`; finally order.size()
  std::vector<size_t> starts;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || index_of(order[i]) != index_of(order[i - 1])) starts.push_back(i);
  }
  const int64_t used = std::ssize(starts);
  starts.push_back(order.size());

  const auto add_row = kernels::loops(dy.dtype).add_column_sums;
  const kernels::Loops& loops = kernels::loops(table_gradient.dtype);
  const Tensor sums = arena.take(value_type(dy.dtype), threads_here(), dy.cols);
  const Tensor rounded = arena.take(table_gradient.dtype, threads_here(), dy.cols);
  parallel_ranges(used, kRowsOfAPart, [&](int64_t first, int64_t count) {
    const Tensor sum = sums.row_range(ThreadPool::thread_index(), 1);
    const Tensor term = rounded.row_range(ThreadPool::thread_index(), 1);
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(first + count); ++i) {
      std::memset(sum.data, 0, sum.bytes());
      for (size_t at = starts[i]; at < starts[i + 1]; ++at) {
        add_row(dy.at(order[at], 0), sum.data, 1, dy.cols, dy.cols);
      }
      void* const gradient = table_gradient.at(index_of(order[starts[i]]), 0);
      loops.from_values(sum.data, term.data, dy.cols);
      loops.add(gradient, term.data, gradient, dy.cols);
    }
  });
}

}  // namespace tutti::training::cpu
