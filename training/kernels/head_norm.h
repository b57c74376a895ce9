// The steps of RMSNorm of queries and keys (modules/head_norm.h): sums and products of groups of
// `size` columns that lie side by side in each row. A gain's elements are those of one group, or of
// all columns. Tensors are in the host's memory and of one type; rows may lie apart. Numbers of
// groups are row after row. Sums are in double, in the columns' order.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/tensor.h"

namespace tutti::training {

// sums = of each group, of x y gain; an empty gain is 1.
void dot_groups(ConstTensor x, ConstTensor y, ConstTensor gain, int64_t size,
                std::span<double> sums);

// y = x gain factor, of each group its own.
void scale_groups(ConstTensor x, ConstTensor gain, int64_t size, std::span<const double> factors,
                  Tensor y);

// dx = dy gain factor + x more.
void scale_groups_backward(ConstTensor dy, ConstTensor x, ConstTensor gain, int64_t size,
                           std::span<const double> factors, std::span<const double> more,
                           Tensor dx);

// sums += of each element of the gain (there are sums.size() of them), of dy x factor, of all rows.
void add_gain_gradients(ConstTensor dy, ConstTensor x, int64_t size,
                        std::span<const double> factors, std::span<double> sums);

}  // namespace tutti::training
