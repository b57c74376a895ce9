// Views of matrices of any floating-point type. All leading dimensions of a tensor together form
// the rows of its matrix: samples x positions rows of `width` values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/error.h"

namespace tutti::training {

class Backend;

// Throws unless the memory is the host's, which is the only memory that the host can access.
inline void require_host(const Backend* backend) {
  if (backend != nullptr) {
    throw Error(ErrorCode::internal, "the host accesses a tensor in device memory");
  }
}

// Returns true if the type's elements may be accessed as T: f32 as float, f64 as double, and
// integers or the bits of 16-bit floats as any T of their size.
template <typename T>
constexpr bool has_elements(DType dtype) {
  if (std::is_same_v<T, float>) return dtype == DType::f32;
  if (std::is_same_v<T, double>) return dtype == DType::f64;
  return size_of(dtype) == sizeof(T);
}

// A view: it does not own its memory. `stride` is the distance between the starts of two rows, in
// elements. `backend` names the memory space; null: the host's.
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
  const Backend* backend = nullptr;

  int64_t size() const { return rows * cols; }
  size_t bytes() const { return static_cast<size_t>(size()) * size_of(dtype); }
  bool contiguous() const { return stride == cols || rows <= 1; }
  bool empty() const { return size() == 0; }

  // Returns a view of rows or columns [first, first + count) of this tensor.
  BasicTensor row_range(int64_t first, int64_t count) const {
    return {at(first, 0), dtype, count, cols, stride, backend};
  }
  BasicTensor col_range(int64_t first, int64_t count) const {
    return {at(0, first), dtype, rows, count, stride, backend};
  }
  // Returns a view of the same elements of a contiguous tensor, in rows of another length.
  BasicTensor reshaped(int64_t new_rows, int64_t new_cols) const {
    return {data, dtype, new_rows, new_cols, new_cols, backend};
  }
  Bytes* at(int64_t row, int64_t col) const {
    return data + static_cast<size_t>(row * stride + col) * size_of(dtype);
  }
  // Returns all elements of a contiguous tensor. Throws Error(internal) if the memory is not the
  // host's, or T is not the element type.
  template <typename T>
  std::span<Element<T>> values() const {
    require_host(backend);
    if (!has_elements<T>(dtype)) {
      throw Error(ErrorCode::internal, "a tensor is accessed as elements of another type");
    }
    return {reinterpret_cast<Element<T>*>(data), static_cast<size_t>(size())};
  }
  operator BasicTensor<true>() const { return {data, dtype, rows, cols, stride, backend}; }
};

using Tensor = BasicTensor<false>;
using ConstTensor = BasicTensor<true>;

inline Tensor tensor_at(void* data, DType dtype, int64_t rows, int64_t cols,
                        const Backend* backend = nullptr) {
  return {static_cast<std::byte*>(data), dtype, rows, cols, cols, backend};
}
inline ConstTensor tensor_at(const void* data, DType dtype, int64_t rows, int64_t cols,
                             const Backend* backend = nullptr) {
  return {static_cast<const std::byte*>(data), dtype, rows, cols, cols, backend};
}

// Returns all elements of a contiguous tensor as a communication buffer.
inline Buffer as_buffer(Tensor tensor) {
  return {tensor.data, static_cast<uint64_t>(tensor.size()), tensor.dtype};
}
inline ConstBuffer as_buffer(ConstTensor tensor) {
  return {tensor.data, static_cast<uint64_t>(tensor.size()), tensor.dtype};
}

// Throws if `good` is false: the arguments of the kernel named `kernel` do not fit together, which
// is a bug of this program.
inline void require_shapes(bool good, const char* kernel) {
  if (!good) {
    throw Error(ErrorCode::internal, std::string(kernel) + ": the shapes or types do not match");
  }
}

}  // namespace tutti::training
