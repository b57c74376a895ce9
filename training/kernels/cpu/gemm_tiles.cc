#include "training/kernels/cpu/gemm_tiles.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>

namespace tutti::training::cpu {

bool has_avx512() {
  static const bool has = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
  return has;
}

bool is_packed(int64_t rows, int64_t cols) {
  return 1.0 / static_cast<double>(rows) + 1.0 / static_cast<double>(cols) < 0.0038;
}

bool wants_packing(const GemmKey& key) {
  return key.in == DType::f32 && key.bits == BitsOf::strides && !has_avx512();
}

namespace {

constexpr int64_t kBestRows = 256;
// minimum number of rows; a tile of so few rows is a few percent slower
constexpr int64_t kLeastRows = 128;
constexpr int64_t kLeastCols = 192;
constexpr int64_t kMostCols = 4096;  // maximum number of columns of b, so that they stay in a cache
constexpr int64_t kEnoughTiles = 8;
constexpr int64_t kSmallProduct = 1 << 23;  // number of multiplications that take some 0.1 ms

// Returns the largest number of parts, a power of two, that have at least `least` elements each.
int64_t halved(int64_t size, int64_t least) {
  int64_t parts = 1;
  while (size / (2 * parts) >= least) parts *= 2;
  return parts;
}

// Returns the size of one of `parts` even shares, rounded up to whole vectors.
int64_t share(int64_t size, int64_t parts) {
  constexpr int64_t kVector = 32;
  return ((size + parts - 1) / parts + kVector - 1) / kVector * kVector;
}

// Divides a product of a transposed matrix, such as the gradient of weights, into strips along the
// longer side of c. If only all of c is large enough to be packed, divides k instead.
Tiles strips_of(const GemmKey& key) {
  constexpr int64_t kMostProducts = int64_t{1}
                                    << 30;  // maximum number of multiplications of a strip
  int64_t parts = kEnoughTiles / 2;
  while (key.m * key.n * key.k / parts > kMostProducts) parts *= 2;
  Tiles strips{key.m, key.n, 1, 1};
  if (key.m > key.n) {
    strips.rows = share(key.m, parts);
    strips.down = (key.m + strips.rows - 1) / strips.rows;
  } else {
    strips.cols = share(key.n, parts);
    strips.across = (key.n + strips.cols - 1) / strips.cols;
  }
  constexpr int64_t kLeastTerms = 256;  // minimum length of a part, since adding a part takes time
  const int64_t divided = std::min(halved(key.k, kLeastTerms), kEnoughTiles / 2);
  const bool only_whole = !is_packed(strips.rows, strips.cols) && is_packed(key.m, key.n);
  return only_whole && divided > 1 ? Tiles{key.m, key.n, 1, 1, divided} : strips;
}

}  // namespace

Tiles tiles_of(const GemmKey& key) {
  if (key.m * key.n * key.k < kSmallProduct) return {key.m, key.n, 1, 1};
  if (wants_packing(key) && key.transpose_a) return strips_of(key);
  int64_t down = halved(key.m, kBestRows);
  if (down < kEnoughTiles) down = halved(key.m, kLeastRows);
  int64_t across = halved(key.n, kMostCols);
  while (down * across < kEnoughTiles && key.n / (2 * across) >= kLeastCols) across *= 2;
  if (wants_packing(key)) {
    const auto is_enough = [&](int64_t rows_at_once) {
      return is_packed(share(key.m, rows_at_once), share(key.n, across));
    };
    int64_t fewer = down;
    while (fewer > 1 && fewer * across > kEnoughTiles / 2 && !is_enough(fewer)) fewer /= 2;
    if (is_enough(fewer)) down = fewer;
  }
  Tiles tiles{share(key.m, down), share(key.n, across), 0, 0};
  tiles.down = (key.m + tiles.rows - 1) / tiles.rows;
  tiles.across = (key.n + tiles.cols - 1) / tiles.cols;
  return tiles;
}

}  // namespace tutti::training::cpu
