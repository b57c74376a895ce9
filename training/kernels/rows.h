// Rows of a matrix with weights: what a mixture of experts adds up (models/mixture.h). Tensors are
// in the host's memory and of one type; sums are in float (f64: double), in the order of the
// columns or places.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/core/tensor.h"

namespace tutti::training {

// products[i] = the sum of a's row i times b's.
void dot_rows(ConstTensor a, ConstTensor b, std::span<double> products);

// y's row i = x's times weights[i]; may be the same memory.
void scale_rows(ConstTensor x, std::span<const double> weights, Tensor y);

// y's row i = the sum over j of x's row places[i * each + j] times weights[i * each + j], where
// `each` is as many as y's rows have. A place below 0 adds nothing. No weights: all are 1.
void add_up_rows(ConstTensor x, std::span<const int32_t> places, std::span<const double> weights,
                 Tensor y);

// The numbers of a row of a tensor that has the type of sums, and back.
std::vector<double> row_of(ConstTensor tensor, int64_t row);
void set_row(Tensor tensor, int64_t row, std::span<const double> numbers);

}  // namespace tutti::training
