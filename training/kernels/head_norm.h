// Steps of RMSNorm of queries and keys (modules/head_norm.h): sums and products over groups of
// `size` consecutive columns of each row. A gain has as many elements as a group, or as all
// columns. Tensors are in the host's memory and have the same type; rows may have gaps. Arrays with
// one number per group are stored row by row. Sums are in double, in the order of columns.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/tensor.h"

namespace tutti::training {

// Writes sums[g] = sum over group g of x y gain; an empty gain counts as 1.
void dot_groups(ConstTensor x, ConstTensor y, ConstTensor gain, int64_t size,
                std::span<double> sums);

// y = x gain factors[g] in group g.
void scale_groups(ConstTensor x, ConstTensor gain, int64_t size, std::span<const double> factors,
                  Tensor y);

// dx = dy gain factors[g] + x more[g] in group g.
void scale_groups_backward(ConstTensor dy, ConstTensor x, ConstTensor gain, int64_t size,
                           std::span<const double> factors, std::span<const double> more,
                           Tensor dx);

// Adds to each of the sums.size() elements of the gain's gradient the sum of dy x factors[g], over
// all rows and over all groups that share the element.
void add_gain_gradients(ConstTensor dy, ConstTensor x, int64_t size,
                        std::span<const double> factors, std::span<double> sums);

}  // namespace tutti::training
