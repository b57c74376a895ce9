// Weighted sums of matrix rows for mixtures of experts (models/mixture.h). Tensors are in the
// host's memory and have the same type. Sums are in float (f64: double): dot_rows() sums columns in
// 16 lanes, add_up_rows() in the order of places.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/core/tensor.h"

namespace tutti::training {

// products[i] = dot product of row i of a and row i of b.
void dot_rows(ConstTensor a, ConstTensor b, std::span<double> products);

// Row i of y = row i of x times weights[i]; may be in place.
void scale_rows(ConstTensor x, std::span<const double> weights, Tensor y);

// Row i of y = sum over j of row places[i * each + j] of x times weights[i * each + j], where each
// = places.size() / y.rows. A place below 0 adds nothing. Empty weights: all are 1.
void add_up_rows(ConstTensor x, std::span<const int32_t> places, std::span<const double> weights,
                 Tensor y);

// Read and write a row of a tensor of f32 or f64.
std::vector<double> row_of(ConstTensor tensor, int64_t row);
void set_row(Tensor tensor, int64_t row, std::span<const double> numbers);

}  // namespace tutti::training
