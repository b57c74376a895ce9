// Creates matrices with given or random values, for measurements and comparisons of kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "training/core/arena.h"
#include "training/core/random.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

// Returns a matrix in the arena, filled by fill(span of float) and rounded to `dtype`.
template <typename Fill>
Tensor filled(Arena& arena, DType dtype, int64_t rows, int64_t cols, Fill fill) {
  const Tensor tensor = arena.take(dtype, rows, cols);
  const ArenaScope scope(arena);
  const Tensor values = arena.take(DType::f32, rows, cols);
  fill(values.values<float>());
  convert(values, tensor);
  return tensor;
}

// Returns a matrix of values in [-1, 1) that depend on the seed alone.
inline Tensor random_matrix(Arena& arena, DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  return filled(arena, dtype, rows, cols, [&](std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = scale_symmetric(random_bits(seed, 0, i), 1.0f);
    }
  });
}

}  // namespace tutti::training
