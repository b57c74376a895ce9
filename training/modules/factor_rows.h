// The two factors of a dense layer's weight gradient dY^T X: rows of the layer's input X and of its
// output's gradient dY, side by side, in the order in which backward adds them.
//
//   row 0   | x_0 (inputs) | dy_0 (outputs) |
//   row 1   | x_1          | dy_1           |
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "training/core/tensor.h"

namespace tutti::training {

class FactorRows {
 public:
  using Allocate = std::function<std::shared_ptr<std::byte[]>(size_t bytes)>;

  // Creates an empty list. Rows are stored in `dtype`, in memory from `allocate`. The memory grows
  // with the number of rows.
  FactorRows(int64_t inputs, int64_t outputs, DType dtype, Allocate allocate);

  // Appends the rows of both tensors, which have equal numbers of rows.
  void add(ConstTensor input, ConstTensor output_gradient);
  // Removes all rows, and keeps the memory for later rows.
  void clear() { rows_ = 0; }

  int64_t rows() const { return rows_; }
  int64_t width() const { return inputs_ + outputs_; }
  DType dtype() const { return dtype_; }
  // Returns all rows, rows x (inputs + outputs); valid until the next add().
  ConstTensor all() const { return tensor(rows_); }
  int64_t bytes() const { return capacity_ * row_bytes(); }

  // Writes the sum over rows of dy^T x to `gradient`, outputs x inputs. `rows` has the format of
  // all(), and may be from any number of ranks.
  static void multiply(ConstTensor rows, Tensor gradient);

 private:
  int64_t row_bytes() const { return width() * static_cast<int64_t>(size_of(dtype_)); }
  Tensor tensor(int64_t rows) const { return tensor_at(memory_.get(), dtype_, rows, width()); }
  void reserve(int64_t rows);

  int64_t inputs_;
  int64_t outputs_;
  DType dtype_;
  Allocate allocate_;
  std::shared_ptr<std::byte[]> memory_;
  int64_t rows_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace tutti::training
