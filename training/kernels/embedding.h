// Rows of a table by their numbers.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/kernels/part_of.h"

namespace tutti::training {

// output's row i = row indices[i] of the whole table; 0 where that is not among the rows here.
// Throws Error(invalid_argument) for a number that is no row of the whole table.
void embedding(ConstTensor table, PartOf rows, std::span<const int32_t> indices, Tensor output);

// Adds to each row of the gradient that is here the sum, in the indices' order, of the rows of dy
// that came from it. A row's sum is in float (f64: double), and rounded before it is added: if a
// tied output layer's gradient is there already, or comes from another stage of a pipeline later,
// the bits are the same. Temporaries come from the arena.
void embedding_backward(ConstTensor dy, std::span<const int32_t> indices, PartOf rows,
                        Tensor table_gradient, Arena& arena);

}  // namespace tutti::training
