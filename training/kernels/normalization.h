// Layer normalization (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019) of the rows of a
// matrix.
//
// x, y, dy, dx: rows x cols, contiguous, of the same floating-point type. gain and bias: 1 x cols
// of that type. Statistics, of value_type, are kept for backward: rows x 2 (mean, 1 / deviation),
// for RMSNorm rows x 1 (1 / root mean square). Backward adds to the gradients of gain and bias,
// with sums in the order of row_sums.h.
#pragma once

#include "training/core/arena.h"
#include "training/core/tensor.h"

namespace tutti::training {

void layer_norm(ConstTensor x, ConstTensor gain, ConstTensor bias, double epsilon, Tensor y,
                Tensor statistics);
void layer_norm_backward(ConstTensor x, ConstTensor gain, ConstTensor dy, ConstTensor statistics,
                         Tensor dx);
void layer_norm_gradients(ConstTensor x, ConstTensor dy, ConstTensor statistics,
                          Tensor gain_gradient, Tensor bias_gradient, Arena& arena);

void rms_norm(ConstTensor x, ConstTensor gain, double epsilon, Tensor y, Tensor statistics);
void rms_norm_backward(ConstTensor x, ConstTensor gain, ConstTensor dy, ConstTensor statistics,
                       Tensor dx);
void rms_norm_gradients(ConstTensor x, ConstTensor dy, ConstTensor statistics, Tensor gain_gradient,
                        Arena& arena);

}  // namespace tutti::training
