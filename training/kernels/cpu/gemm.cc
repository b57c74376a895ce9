#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/gemm_tiles.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"
#include "training/kernels/cpu/onednn.h"

extern "C" {
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,
            const double* beta, double* c, const int* ldc);
}

namespace tutti::training::cpu {
namespace {

using Descriptor = dnnl::memory::desc;

// Describes a matrix of rows x cols, possibly stored as its transpose.
Descriptor matrix(int64_t rows, int64_t cols, int64_t stride, bool transposed, DType type) {
  using Dims = dnnl::memory::dims;
  const Dims strides = transposed ? Dims{1, stride} : Dims{stride, 1};
  return {Dims{rows, cols}, onednn::data_type(type), strides};
}

// A product's matrices and attributes, described for oneDNN.
struct Described {
  Descriptor a, b, c, bias;
  dnnl::primitive_attr attributes;

  explicit Described(const GemmKey& key)
      : a(matrix(key.m, key.k, key.stride_a, key.transpose_a, key.in)),
        b(matrix(key.k, key.n, key.stride_b, key.transpose_b, key.in)),
        c(matrix(key.m, key.n, key.stride_c, false, key.out)),
        bias(key.bias ? matrix(1, key.n, key.n, false, key.in) : Descriptor()) {
    if (!key.accumulate) return;
    dnnl::post_ops post;
    post.append_sum(1.0f);
    attributes.set_post_ops(post);
  }

  // calls describe(a, b, [bias,] c)
  dnnl::matmul::primitive_desc by(const auto& describe) const {
    return bias.is_zero() ? describe(a, b, c) : describe(a, b, bias, c);
  }
  dnnl::matmul::primitive_desc descriptor() const {
    return by([&](const auto&... all) {
      return onednn::primitive_descriptor<dnnl::matmul>(attributes, all...);
    });
  }
  dnnl::matmul::primitive_desc descriptor_by(const std::string& implementation) const {
    return by([&](const auto&... all) {
      return onednn::primitive_descriptor_by<dnnl::matmul>(implementation, attributes, all...);
    });
  }
};

// Returns the implementation that oneDNN chooses for matrices with gaps between rows, which
// supports any strides.
std::string implementation_for_any_strides(GemmKey key) {
  key.stride_a *= 2;
  key.stride_b *= 2;
  key.stride_c *= 2;
  const auto chosen = Described(key).descriptor();
  return chosen.impl_info_str();
}

onednn::Primitive make_product(const GemmKey& key) {
  const Described product(key);
  const auto descriptor = key.bits == BitsOf::strides
                              ? product.descriptor()
                              : product.descriptor_by(implementation_for_any_strides(key));
  return {dnnl::matmul(descriptor),
          {{DNNL_ARG_SRC, product.a},
           {DNNL_ARG_WEIGHTS, product.b},
           {DNNL_ARG_DST, product.c},
           {DNNL_ARG_BIAS, product.bias}}};
}

std::string describe_product(const GemmKey& key) {
  return cat("a product of ", key.m, " x ", key.k, " and ", key.k, " x ", key.n, " in ",
             name(key.in));
}

// Computes a product by BLAS, which is column-major, as c^T = op(b)^T op(a)^T.
void product_f64(const GemmKey& key, ConstTensor a, ConstTensor b, Tensor c, ConstTensor bias) {
  double beta = key.accumulate ? 1 : 0;
  if (key.bias) {
    beta = 1;
    for (int64_t row = 0; row < c.rows; ++row) {
      const auto source = bias.values<double>();
      std::copy(source.begin(), source.end(), reinterpret_cast<double*>(c.at(row, 0)));
    }
  }
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  const int m = narrow(key.m), n = narrow(key.n), k = narrow(key.k);
  const int lda = narrow(key.stride_a), ldb = narrow(key.stride_b), ldc = narrow(key.stride_c);
  const double alpha = 1;
  dgemm_(key.transpose_b ? "T" : "N", key.transpose_a ? "T" : "N", &n, &m, &k, &alpha,
         reinterpret_cast<const double*>(b.data), &ldb, reinterpret_cast<const double*>(a.data),
         &lda, &beta, reinterpret_cast<double*>(c.data), &ldc);
}

// Returns an operand converted to contiguous f32, in `memory`, which must outlive the result.
ConstTensor as_f32(ConstTensor source, std::vector<float>& memory) {
  if (source.dtype == DType::f32) return source;
  memory.resize(static_cast<size_t>(source.size()));
  float* const values = memory.data();
  const kernels::Loops& loops = kernels::loops(source.dtype);
  parallel_rows(source.rows, source.cols, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      loops.to_values(source.at(row, 0), values + row * source.cols, source.cols);
    }
  });
  return tensor_at(static_cast<const void*>(memory.data()), DType::f32, source.rows, source.cols);
}

void gemm_by_f32(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b,
                 Tensor c, GemmMode mode, ConstTensor bias, BitsOf bits) {
  thread_local std::array<std::vector<float>, 4> memory;
  const ConstTensor wide_bias = bias.empty() ? bias : as_f32(bias, memory[2]);
  Tensor wide = c;
  if (c.dtype != DType::f32) {
    memory[3].resize(static_cast<size_t>(c.size()));
    wide = tensor_at(memory[3].data(), DType::f32, c.rows, c.cols);
  }
  const bool widened = c.dtype != DType::f32;
  cpu::gemm(as_f32(a, memory[0]), transpose_a, as_f32(b, memory[1]), transpose_b, wide,
            widened ? GemmMode::overwrite : mode, wide_bias, bits);
  if (!widened) return;
  const kernels::Loops& loops = kernels::loops(c.dtype);
  const auto narrow = mode == GemmMode::accumulate ? loops.add_values : loops.from_values;
  parallel_rows(c.rows, c.cols, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      narrow(wide.at(row, 0), c.at(row, 0), c.cols);
    }
  });
}

// A contiguous copy of a column of a matrix.
class CloseColumn {
 public:
  explicit CloseColumn(ConstTensor column)
      : memory_(static_cast<size_t>(column.rows) * size_of(column.dtype)),
        values_(tensor_at(memory_.data(), column.dtype, column.rows, 1)) {
    copy(column, values_);
  }
  Tensor values() const { return values_; }
  void copy_to(Tensor column) const { copy(values_, column); }

 private:
  static void copy(ConstTensor from, Tensor to) {
    for (int64_t row = 0; row < to.rows; ++row) {
      cpu::copy(from.row_range(row, 1), to.row_range(row, 1));
    }
  }

  std::vector<std::byte> memory_;
  Tensor values_;
};

// Computes a product with one column. oneDNN uses another order of summation for contiguous
// columns, so columns are always copied to contiguous memory.
void gemm_of_a_column(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b,
                      Tensor c, GemmMode mode, ConstTensor bias) {
  const CloseColumn close_c(c);
  std::optional<CloseColumn> close_b;
  if (transpose_b == Transpose::no) b = close_b.emplace(b).values();
  cpu::gemm(a, transpose_a, b, transpose_b, close_c.values(), mode, bias, BitsOf::shape);
  close_c.copy_to(c);
}

// Computes a product with k = 0 (oneDNN leaves c unchanged, BLAS rejects the strides): every row of
// c becomes the bias.
void set_rows(Tensor c, ConstTensor bias) {
  for (int64_t row = 0; row < c.rows; ++row) {
    if (bias.empty()) {
      std::memset(c.at(row, 0), 0, c.row_range(row, 1).bytes());
    } else {
      cpu::convert(bias, c.row_range(row, 1));
    }
  }
}

// Returns the part of `a` that begins at row and column (row, col) of op(a).
ConstTensor part_of(ConstTensor a, bool transposed, int64_t row, int64_t col) {
  a.data = transposed ? a.at(col, row) : a.at(row, col);
  return a;
}

void multiply(const GemmKey& key, ConstTensor a, ConstTensor b, void* c, const void* bias) {
  onednn::run(key, make_product, describe_product, [&](onednn::Primitive& primitive) {
    primitive.run({{DNNL_ARG_SRC, a.data},
                   {DNNL_ARG_WEIGHTS, b.data},
                   {DNNL_ARG_DST, c},
                   {DNNL_ARG_BIAS, bias}});
  });
}

// Returns true if a matrix should be copied to another stride. If the distance between rows is a
// multiple of a page, or of half a page, the elements of a column share a few cache sets, and
// products that read the matrix column by column take up to twice as long. With AVX-512, oneDNN
// reads more of each row at once, and half a page is harmless.
bool collides(const GemmKey& key, int64_t stride) {
  const int64_t distance = has_avx512() ? 4096 : 2048;
  return key.in == DType::f32 && stride * static_cast<int64_t>(sizeof(float)) % distance == 0;
}

// Returns a copy of the rows with gaps between them, in `memory`, which must outlive the result.
ConstTensor spread_out(ConstTensor rows, std::vector<float>& memory) {
  constexpr int64_t kGap = 16;  // elements of a cache line
  const int64_t stride = rows.cols + kGap;
  memory.resize(std::max(memory.size(), static_cast<size_t>(rows.rows * stride)));
  ConstTensor copied =
      tensor_at(static_cast<const void*>(memory.data()), DType::f32, rows.rows, rows.cols);
  copied.stride = stride;
  for (int64_t row = 0; row < rows.rows; ++row) {
    std::memcpy(memory.data() + row * stride, rows.at(row, 0),
                static_cast<size_t>(rows.cols) * sizeof(float));
  }
  return copied;
}

// Selects the operands of a tile that are copied: operands whose row stride makes reading columns
// slow (collides()), and for which a copy is cheap compared with the products.
struct Copied {
  bool left, right;

  explicit Copied(const GemmKey& key)
      : left(!is_packed_by_onednn(key) && key.transpose_a && collides(key, key.stride_a) &&
             key.n >= kUses),
        right(!is_packed_by_onednn(key) && !key.transpose_b && collides(key, key.stride_b) &&
              key.m >= kUses) {}
  bool any() const { return left || right; }
  int64_t values_of_a_term(const GemmKey& key) const {
    return (left ? key.m : 0) + (right ? key.n : 0);
  }

 private:
  static constexpr int64_t kUses = 64;
  static bool is_packed_by_onednn(const GemmKey& key) {
    return wants_packing(key) && is_packed(key.m, key.n);
  }
};

// Returns the number of terms (elements of k) per product with copies: as many as keep the copies
// in a cache. For BitsOf::shape returns all terms, or 0 (no copies) if these are too many.
int64_t terms_at_once(const GemmKey& key, const Copied& copied) {
  constexpr int64_t kValues = 1 << 20;
  constexpr int64_t kLeast = 256;
  const int64_t most = std::max(kLeast, kValues / copied.values_of_a_term(key));
  if (key.bits == BitsOf::shape) return key.k <= 2 * most ? key.k : 0;
  return std::min(key.k, most);
}

void multiply_copies(GemmKey key, const Copied& copied, ConstTensor a, ConstTensor b, void* c,
                     const void* bias) {
  thread_local std::array<std::vector<float>, 2> memory;
  const int64_t all = key.k, step = terms_at_once(key, copied);
  if (step == 0) return multiply(key, a, b, c, bias);
  for (int64_t first = 0; first < all; first += step) {
    key.k = std::min(step, all - first);
    ConstTensor left = part_of(a, key.transpose_a, 0, first);
    ConstTensor right = part_of(b, key.transpose_b, first, 0);
    if (copied.left) {
      left.rows = key.k;
      left.cols = key.m;
      left = spread_out(left, memory[0]);
      key.stride_a = left.stride;
    }
    if (copied.right) {
      right.rows = key.k;
      right.cols = key.n;
      right = spread_out(right, memory[1]);
      key.stride_b = right.stride;
    }
    multiply(key, left, right, c, key.bias ? bias : nullptr);
    key.bias = false;
    key.accumulate = true;
  }
}

void compute_tile(GemmKey key, const Tiles& tiles, int64_t tile, ConstTensor a, ConstTensor b,
                  Tensor c, ConstTensor bias) {
  // Tiles of one column of tiles have consecutive indices, because they share their part of b.
  const int64_t row = tile % tiles.down * tiles.rows;
  const int64_t col = tile / tiles.down * tiles.cols;
  const ConstTensor left = part_of(a, key.transpose_a, row, 0);
  const ConstTensor right = part_of(b, key.transpose_b, 0, col);
  const std::byte* const biases = key.bias ? bias.at(0, col) : nullptr;
  key.m = std::min(tiles.rows, key.m - row);
  key.n = std::min(tiles.cols, key.n - col);
  const Copied copied(key);
  if (copied.any()) return multiply_copies(key, copied, left, right, c.at(row, col), biases);
  multiply(key, left, right, c.at(row, col), biases);
}

// Computes the parts of k of a product of one tile. The first part's result goes to c; the others'
// are added to it, in order.
void compute_parts(GemmKey key, int64_t parts, ConstTensor a, ConstTensor b, Tensor c,
                   ConstTensor bias) {
  thread_local std::vector<float> memory;
  const int64_t size = key.m * key.n, terms = (key.k + parts - 1) / parts;
  memory.resize(std::max(memory.size(), static_cast<size_t>((parts - 1) * size)));
  float* const others = memory.data();
  const auto other = [=](int64_t part) {
    return tensor_at(others + (part - 1) * size, DType::f32, key.m, key.n);
  };
  parallel_for(parts, [&](int64_t part) {
    GemmKey own = key;
    own.k = std::min(terms, key.k - part * terms);
    const ConstTensor left = part_of(a, key.transpose_a, 0, part * terms);
    const ConstTensor right = part_of(b, key.transpose_b, part * terms, 0);
    if (part == 0) return multiply(own, left, right, c.data, key.bias ? bias.data : nullptr);
    own.bias = own.accumulate = false;
    own.stride_c = key.n;
    multiply(own, left, right, other(part).data, nullptr);
  });
  const kernels::Loops& loops = kernels::loops(DType::f32);
  parallel_rows(c.rows, c.cols, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      for (int64_t part = 1; part < parts; ++part) {
        loops.add_values(other(part).at(row, 0), c.at(row, 0), c.cols);
      }
    }
  });
}

}  // namespace

void gemm(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
          GemmMode mode, ConstTensor bias, BitsOf bits) {
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const GemmKey key{.m = c.rows,
                    .n = c.cols,
                    .k = ta ? a.rows : a.cols,
                    .stride_a = a.stride,
                    .stride_b = b.stride,
                    .stride_c = c.stride,
                    .transpose_a = ta,
                    .transpose_b = tb,
                    .bias = !bias.empty(),
                    .accumulate = mode == GemmMode::accumulate,
                    .bits = bits,
                    .in = a.dtype,
                    .out = c.dtype};
  require_shapes((ta ? a.cols : a.rows) == key.m && (tb ? b.rows : b.cols) == key.n &&
                     (tb ? b.cols : b.rows) == key.k && a.dtype == b.dtype &&
                     (c.dtype == a.dtype || (c.dtype == DType::f32 && size_of(a.dtype) == 2)) &&
                     (bias.empty() || (bias.cols == key.n && bias.dtype == a.dtype)) &&
                     !(key.bias && key.accumulate),
                 "gemm");
  if (key.m == 0 || key.n == 0 || (key.k == 0 && key.accumulate)) return;
  if (key.k == 0) return set_rows(c, bias);
  if (a.dtype == DType::f64) return product_f64(key, a, b, c, bias);
  if (!onednn::computes_in(a.dtype)) {
    return gemm_by_f32(a, transpose_a, b, transpose_b, c, mode, bias, bits);
  }
  if (bits == BitsOf::shape && key.n == 1 && (c.stride != 1 || (!tb && b.stride != 1))) {
    return gemm_of_a_column(a, transpose_a, b, transpose_b, c, mode, bias);
  }
  const Tiles tiles = tiles_of(key);
  if (tiles.parts > 1) return compute_parts(key, tiles.parts, a, b, c, bias);
  parallel_for(tiles.down * tiles.across,
               [&](int64_t tile) { compute_tile(key, tiles, tile, a, b, c, bias); });
}

}  // namespace tutti::training::cpu
