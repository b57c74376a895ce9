// Convolution in double precision, for gradient checks: im2col and a matrix product, image by
// image.
#pragma once

#include "training/kernels/convolution.h"

namespace tutti::training::cpu {

// These functions do for f64 tensors what the functions of kernels/convolution.h do.
void convolution_f64(const ConvolutionShape& shape, ConstTensor x, ConstTensor weight,
                     ConstTensor bias, Tensor y, Arena& arena);
void convolution_backward_input_f64(const ConvolutionShape& shape, ConstTensor dy,
                                    ConstTensor weight, Tensor dx, Arena& arena);
void convolution_backward_weight_f64(const ConvolutionShape& shape, ConstTensor x, ConstTensor dy,
                                     Tensor weight_gradient, Arena& arena);

}  // namespace tutti::training::cpu
