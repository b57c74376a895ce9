// Tensors of any floating-point type that own their memory and are read and written as doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "training/core/tensor.h"

namespace tutti::training::testing {

double get(ConstTensor tensor, int64_t row, int64_t col);
// Sets an element to `value`, rounded to the tensor's type.
void set(Tensor tensor, int64_t row, int64_t col, double value);

// Returns all elements, row after row.
std::vector<double> doubles(ConstTensor tensor);
void assign(Tensor tensor, std::span<const double> values);
// Sets element i to a function of (stream, i), uniform in [-limit, limit).
void randomize(Tensor tensor, uint64_t stream, double limit = 1);
bool same_bits(ConstTensor a, ConstTensor b);

class HostTensor {
 public:
  HostTensor() = default;
  // Elements are zeros. `gap` elements, which are ones, follow each row.
  HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t gap = 0);
  HostTensor(HostTensor&&) = default;
  HostTensor& operator=(HostTensor&&) = default;

  Tensor view() const { return view_; }
  operator Tensor() const { return view_; }
  operator ConstTensor() const { return view_; }
  // Returns true if the gaps still contain ones.
  bool gaps_untouched() const;

 private:
  std::vector<double> memory_;
  Tensor view_;
};

HostTensor random_tensor(DType dtype, int64_t rows, int64_t cols, uint64_t stream, double limit = 1,
                         int64_t gap = 0);
// Returns `source` rounded to another type.
HostTensor rounded_to(DType dtype, ConstTensor source);

// Returns max |a[i] - b[i]| / max |b[i]|.
double relative_distance(ConstTensor a, ConstTensor b);
double relative_distance(std::span<const double> a, std::span<const double> b);

}  // namespace tutti::training::testing
