// Views of matrices in any floating-point type. A tensor of more dimensions is a matrix whose rows
// are its leading ones: samples x positions rows of `width` values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"

namespace tutti::training {

// Does not own its memory. `stride` elements lie between the starts of two rows.
template <bool is_const>
struct BasicTensor {
  using Bytes = std::conditional_t<is_const, const std::byte, std::byte>;
  template <typename T>
  using Element = std::conditional_t<is_const, const T, T>;

  Bytes* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  int64_t size() const { return rows * cols; }
  size_t bytes() const { return static_cast<size_t>(size()) * size_of(dtype); }
  bool contiguous() const { return stride == cols || rows <= 1; }
  bool empty() const { return size() == 0; }

  // Rows and columns [first, first + count) of this tensor.
  BasicTensor row_range(int64_t first, int64_t count) const {
    return {at(first, 0), dtype, count, cols, stride};
  }
  BasicTensor col_range(int64_t first, int64_t count) const {
    return {at(0, first), dtype, rows, count, stride};
  }
  Bytes* at(int64_t row, int64_t col) const {
    return data + static_cast<size_t>(row * stride + col) * size_of(dtype);
  }
  // All elements; the tensor is contiguous and T is the type of its elements.
  template <typename T>
  std::span<Element<T>> values() const {
    return {reinterpret_cast<Element<T>*>(data), static_cast<size_t>(size())};
  }
  operator BasicTensor<true>() const { return {data, dtype, rows, cols, stride}; }
};

using Tensor = BasicTensor<false>;
using ConstTensor = BasicTensor<true>;

inline Tensor tensor_at(void* data, DType dtype, int64_t rows, int64_t cols) {
  return {static_cast<std::byte*>(data), dtype, rows, cols, cols};
}
inline ConstTensor tensor_at(const void* data, DType dtype, int64_t rows, int64_t cols) {
  return {static_cast<const std::byte*>(data), dtype, rows, cols, cols};
}

// The kernels' check of their arguments: `good` fails only by a mistake in this program.
inline void require_shapes(bool good, const char* kernel) {
  if (!good) {
    throw Error(ErrorCode::internal,
                std::string(kernel) + ": the shapes or types do not fit together");
  }
}

}  // namespace tutti::training
