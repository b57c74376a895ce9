// Tensors of any floating-point type in memory of their own, read and written as doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "training/core/tensor.h"

namespace tutti::training::testing {

double get(ConstTensor tensor, int64_t row, int64_t col);
// Rounded to the tensor's type.
void set(Tensor tensor, int64_t row, int64_t col, double value);

// All elements by rows.
std::vector<double> doubles(ConstTensor tensor);
void assign(Tensor tensor, std::span<const double> values);
// Element i becomes a function of (stream, i), uniform in [-limit, limit).
void randomize(Tensor tensor, uint64_t stream, double limit = 1);
bool same_bits(ConstTensor a, ConstTensor b);

class HostTensor {
 public:
  HostTensor() = default;
  // Zeros; rows lie `gap` elements further apart than need be. Between them lie ones.
  HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t gap = 0);
  HostTensor(HostTensor&&) = default;
  HostTensor& operator=(HostTensor&&) = default;

  Tensor view() const { return view_; }
  operator Tensor() const { return view_; }
  operator ConstTensor() const { return view_; }
  // Whether the gaps still hold ones.
  bool gaps_untouched() const;

 private:
  std::vector<double> memory_;
  Tensor view_;
};

HostTensor random_tensor(DType dtype, int64_t rows, int64_t cols, uint64_t stream, double limit = 1,
                         int64_t gap = 0);
// The same values, rounded to another type.
HostTensor rounded_to(DType dtype, ConstTensor source);

// The largest |a - b| as a part of the largest |b|.
double relative_distance(ConstTensor a, ConstTensor b);
double relative_distance(std::span<const double> a, std::span<const double> b);

}  // namespace tutti::training::testing
