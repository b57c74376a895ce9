// Batch normalization (Ioffe, Szegedy 2015) of the columns of a matrix, with the ReLU that usually
// follows it:  y = relu((x - mean) / deviation * gain + bias).
//
// x, y, dy, dx: rows x cols, contiguous, in one floating-point type. gain and bias: 1 x cols of
// that type. statistics: 2 x cols of value_type: the means, and 1 / deviation. Sums run in double,
// as row_sums.h has them. Temporaries come from the arena.
#pragma once

#include <span>

#include "training/core/arena.h"
#include "training/core/tensor.h"

namespace tutti::training {

// moments[c] += the sum of column c, moments[cols + c] += the sum of its squares.
void column_moments(ConstTensor x, std::span<double> moments, Arena& arena);

void batch_norm(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor bias,
                bool relu, Tensor y, Arena& arena);

// sums[c] = the sum of column c of g, sums[cols + c] = that of g * (x - mean) / deviation: the
// gradients of bias and gain. g is dy, or 0 where y is not above 0; an empty y: no ReLU.
void batch_norm_sums(ConstTensor x, ConstTensor statistics, ConstTensor y, ConstTensor dy,
                     std::span<double> sums, Arena& arena);

// dx where the statistics came from `count` rows (all ranks' together) with these sums; where they
// did not come from x at all, `sums` is empty.
void batch_norm_backward(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor y,
                         ConstTensor dy, std::span<const double> sums, double count, Tensor dx,
                         Arena& arena);

}  // namespace tutti::training
