// Row-major float32 matrices: views, and a buffer that grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "training/parameters.h"

namespace tutti::training {

// Does not own its memory. Rows follow each other without gaps.
template <typename T>
struct BasicMatrix {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  size_t size() const { return static_cast<size_t>(rows * cols); }
  std::span<T> row(int64_t index) const { return {data + index * cols, static_cast<size_t>(cols)}; }
  std::span<T> values() const { return {data, size()}; }
  operator BasicMatrix<const T>() const { return {data, rows, cols}; }
};

using Matrix = BasicMatrix<float>;
using ConstMatrix = BasicMatrix<const float>;

// Owns the memory of one matrix whose size changes from call to call; never shrinks, so a training
// loop stops allocating after its first step.
class MatrixBuffer {
 public:
  // The values are unspecified. Views given out before become invalid.
  Matrix resize(int64_t rows, int64_t cols) {
    const size_t count = static_cast<size_t>(rows * cols);
    if (count > capacity_) {
      memory_ = allocate_host(count);
      capacity_ = count;
    }
    view_ = {memory_.get(), rows, cols};
    return view_;
  }
  Matrix view() const { return view_; }

 private:
  Memory<float> memory_;
  size_t capacity_ = 0;
  Matrix view_;
};

}  // namespace tutti::training
