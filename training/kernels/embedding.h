// Look-up of table rows by index.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/kernels/part_of.h"

namespace tutti::training {

// Sets row i of the output to row indices[i] of the whole table, or to 0 if that row is not in this
// part. Throws Error(invalid_argument) for an index outside the whole table.
void embedding(ConstTensor table, PartOf rows, std::span<const int32_t> indices, Tensor output);

// Adds to each row of this part's gradient the sum of the rows of dy whose index selects it, in the
// order of `indices`. The sum is in float (f64: double), and is rounded before it is added. The
// bits are therefore the same whether a tied output layer's gradient was already added or comes
// later from another pipeline stage. Temporaries come from the arena.
void embedding_backward(ConstTensor dy, std::span<const int32_t> indices, PartOf rows,
                        Tensor table_gradient, Arena& arena);

}  // namespace tutti::training
