// Batch normalization (Ioffe, Szegedy 2015) of the columns of a matrix, optionally followed by
// ReLU:  y = relu((x - mean) / deviation * gain + bias).
//
// x, y, dy, dx: rows x cols, contiguous, of the same floating-point type. gain and bias: 1 x cols
// of that type. statistics: 2 x cols of value_type: the means, and 1 / deviation. Sums are in
// double, in the order of row_sums.h. Temporaries come from the arena.
#pragma once

#include <span>

#include "training/core/arena.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Adds the sum of column c to moments[c], and the sum of its squares to moments[cols + c].
void column_moments(ConstTensor x, std::span<double> moments, Arena& arena);

void batch_norm(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor bias,
                bool relu, Tensor y, Arena& arena);

// Writes the gradients of bias and gain: sums[c] = the sum of column c of g, and sums[cols + c] =
// the sum of column c of g * (x - mean) / deviation. Here g is dy, or 0 where y <= 0. An empty y
// means that there is no ReLU.
void batch_norm_sums(ConstTensor x, ConstTensor statistics, ConstTensor y, ConstTensor dy,
                     std::span<double> sums, Arena& arena);

// Writes dx. `sums` are the results of batch_norm_sums(), and `count` is the number of rows that
// the statistics cover; both must be summed over all ranks first. If the statistics do not depend
// on x (running statistics), `sums` is empty.
void batch_norm_backward(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor y,
                         ConstTensor dy, std::span<const double> sums, double count, Tensor dx,
                         Arena& arena);

}  // namespace tutti::training
