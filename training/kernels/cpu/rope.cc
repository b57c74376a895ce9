#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training::cpu {

void rope(Tensor rows, int64_t heads, int64_t head_size, int64_t context, const void* table,
          int direction) {
  require_shapes(heads * head_size <= rows.cols, "rope");
  const auto loop = kernels::loops(rows.dtype).rope;
  parallel_ranges(rows.rows, context, [&](int64_t first, int64_t count) {
    void* const data = rows.at(first, 0);
    loop(data, data, {count, rows.stride, heads, head_size}, context, table, direction);
  });
}

}  // namespace tutti::training::cpu
