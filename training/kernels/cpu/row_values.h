// Access to rows of a tensor in the type in which they are summed: float, or double for f64.
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/tensor.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training {

// Returns the values of a row, in the tensor's memory if it has that type, otherwise converted into
// `memory`.
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

// Calls body(Value()), where Value is the type in which x is summed.
template <typename Body>
void with_values(ConstTensor x, const Body& body) {
  x.dtype == DType::f64 ? body(double()) : body(float());
}

}  // namespace tutti::training
