#include "training/modules/rope.h"

#include <cmath>

#include "base/text.h"
#include "training/kernels/rope.h"

namespace tutti::training {

Rope::Rope(int64_t context, int64_t head_size, double base)
    : context_(context), head_size_(head_size) {
  if (head_size % 2 != 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("rotary positions need heads of an even size, not ", head_size),
                {.remedy = "choose a width that is an even multiple of the number of heads"});
  }
  const int64_t half = head_size / 2;
  table_f64_.resize(static_cast<size_t>(2 * context * half));
  for (int64_t position = 0; position < context; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(head_size));
      table_f64_[static_cast<size_t>(position * half + i)] = std::cos(angle);
      table_f64_[static_cast<size_t>((context + position) * half + i)] = std::sin(angle);
    }
  }
  table_.assign(table_f64_.begin(), table_f64_.end());
}

void Rope::turn(Tensor rows, int64_t heads, int direction) const {
  const void* table = rows.dtype == DType::f64 ? static_cast<const void*>(table_f64_.data())
                                               : static_cast<const void*>(table_.data());
  rope(rows, heads, head_size_, context_, table, direction);
}

}  // namespace tutti::training
