// Rows of a tensor in the type of their sums: float, or double for f64.
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/tensor.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training {

// The values of a row; converted into `memory` unless the tensor has that type.
template <typename Value>
const Value* values_of(ConstTensor x, int64_t row, std::vector<Value>& memory) {
  if (size_of(x.dtype) == sizeof(Value)) return reinterpret_cast<const Value*>(x.at(row, 0));
  memory.resize(static_cast<size_t>(x.cols));
  kernels::loops(x.dtype).to_values(x.at(row, 0), memory.data(), x.cols);
  return memory.data();
}

template <typename Value>
void set_values(const Value* values, Tensor y, int64_t row) {
  kernels::loops(y.dtype).from_values(values, y.at(row, 0), y.cols);
}

// Calls body(Value()) with the type of x's sums.
template <typename Body>
void with_values(ConstTensor x, const Body& body) {
  x.dtype == DType::f64 ? body(double()) : body(float());
}

}  // namespace tutti::training
