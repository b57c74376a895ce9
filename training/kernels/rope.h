// Rotary position embedding (Su et al.: RoFormer, 2021) of the pairs (i, i + head_size / 2).
#pragma once

#include "training/core/tensor.h"

namespace tutti::training {

// Rotates, in place, the first `heads` heads of `head_size` columns in each row. Row r has position
// r % context. table: in the host's memory, of value_type; it has for each position head_size / 2
// cosines, then as many sines. direction: 1, or -1 for the inverse.
void rope(Tensor rows, int64_t heads, int64_t head_size, int64_t context, const void* table,
          int direction);

}  // namespace tutti::training
