// Division of a product into parts that the threads of a pool compute.
#pragma once

#include <compare>
#include <cstdint>

#include "base/dtype.h"
#include "training/kernels/gemm.h"

namespace tutti::training::cpu {

// Key of a cached primitive: one product.
struct GemmKey {
  int64_t m = 0, n = 0, k = 0;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  BitsOf bits = BitsOf::strides;
  DType in = DType::f32, out = DType::f32;
  auto operator<=>(const GemmKey&) const = default;  // NOLINT(modernize-use-nullptr): false alarm
};

// Division of a product into tiles of c: rows are divided first, because packing b for each tile
// costs almost nothing, then columns. Tiles depend on the shape alone. With BitsOf::strides, a
// product of one tile may be divided into parts of k whose results are added.
struct Tiles {
  int64_t rows, cols;  // size of one tile
  int64_t down, across;
  int64_t parts = 1;  // of k
};
Tiles tiles_of(const GemmKey& key);

bool has_avx512();
// Returns true if oneDNN's AVX2 kernels pack the operands of a tile of this size (by the rule of
// its nocopy_checker_avx2()). These kernels are up to 1.5 times as fast as those that read the
// operands where they are, most of all if a is transposed.
bool is_packed(int64_t rows, int64_t cols);
// Returns true if tiles should be large enough for is_packed(). For large tiles oneDNN chooses the
// order of summation by the strides, so this is not for BitsOf::shape.
bool wants_packing(const GemmKey& key);

}  // namespace tutti::training::cpu
