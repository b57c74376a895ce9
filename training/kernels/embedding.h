// Look-up of table rows by index.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/kernels/part_of.h"

namespace tutti::training {

// Row i of the output = row indices[i] of the whole table, or 0 if that row is not in this part.
// Throws Error(invalid_argument) for an index outside of the whole table.
void embedding(ConstTensor table, PartOf rows, std::span<const int32_t> indices, Tensor output);

// Adds to each row of the gradient in this part the sum, in the order of `indices`, of the rows of
// dy with its index. The sum is in float (f64: double), and is rounded before it is added: so the
// bits are the same whether a tied output layer's gradient was added before, or comes from another
// pipeline stage later. Temporaries come from the arena.
void embedding_backward(ConstTensor dy, std::span<const int32_t> indices, PartOf rows,
                        Tensor table_gradient, Arena& arena);

}  // namespace tutti::training
