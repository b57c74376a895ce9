#include "training/kernels/quantized_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "training/core/random.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"
#include "training/kernels/cpu/operand_loops.h"

namespace tutti::training::cpu {
namespace {

using kernels::operand_loops;
using kernels::OperandLoops;
using kernels::Square;

int64_t block_of(GemmFormat format) {
  if (format == GemmFormat::tf32) return kernels::kTf32Block;
  if (format == GemmFormat::fp8) return kernels::kFp8Block;
  return format == GemmFormat::mxfp8 ? kernels::kMxfp8Block : kernels::kNvfp4Block;
}

// An operand, whose rows follow the dimension over which the product sums.
struct Operand {
  ConstTensor source;  // the operand or its transpose
  bool transposed = false;
  OperandKind kind = OperandKind::activation;

  int64_t rows() const { return transposed ? source.cols : source.rows; }
  int64_t terms() const { return transposed ? source.rows : source.cols; }
};

// Copies rows [first, first + count) of an operand that is stored as its transpose.
void copy_transposed(ConstTensor source, int64_t first, int64_t count, Tensor to) {
  constexpr int64_t kTerms = 16;  // number of floats in a cache line
  constexpr int64_t kMostRows = kernels::kFp8Block;
  std::array<float, kTerms * kMostRows> tile;
  const kernels::Loops& loops = kernels::loops(source.dtype);
  for (int64_t term = 0; term < source.rows; term += kTerms) {
    const int64_t terms = std::min(kTerms, source.rows - term);
    for (int64_t i = 0; i < terms; ++i) {
      loops.to_values(source.at(term + i, first), tile.data() + i * kMostRows, count);
    }
    for (int64_t row = 0; row < count; ++row) {
      auto* const values = reinterpret_cast<float*>(to.at(first + row, term));
      for (int64_t i = 0; i < terms; ++i)
        values[i] = tile[static_cast<size_t>(i * kMostRows + row)];
    }
  }
}

// Copies rows of any operand, with zeros after its last term.
void copy_rows(const Operand& operand, int64_t first, int64_t count, Tensor to) {
  const int64_t terms = operand.terms();
  if (operand.transposed) {
    copy_transposed(operand.source, first, count, to);
  } else {
    const kernels::Loops& loops = kernels::loops(operand.source.dtype);
    for (int64_t row = first; row < first + count; ++row) {
      loops.to_values(operand.source.at(row, 0), to.at(row, 0), terms);
    }
  }
  if (terms == to.cols) return;
  for (int64_t row = first; row < first + count; ++row) {
    std::memset(to.at(row, terms), 0, static_cast<size_t>(to.cols - terms) * sizeof(float));
  }
}

// Calls body(square, its first column) for each square of rows [first, first + count).
template <typename Body>
void for_each_square(Tensor rows, int64_t first, int64_t count, int64_t block, const Body& body) {
  for (int64_t col = 0; col < rows.cols; col += block) {
    body(Square{.values = reinterpret_cast<float*>(rows.at(first, col)),
                .rows = count,
                .cols = std::min(block, rows.cols - col),
                .stride = rows.stride},
         col);
  }
}

// Returns the factor s of quantized_gemm.h.
float scale_of_operand(float largest) {
  if (largest == 0) return 1;
  return std::min(448.0f * 6.0f / largest, std::numeric_limits<float>::max());
}

class Quantizer {
 public:
  Quantizer(const QuantizedProduct& product, Arena& arena)
      : product_(product), arena_(arena), block_(block_of(product.format)) {}

  // Returns the rounded operand, in memory from the arena: rows x terms in f32, without the factor
  // scale().
  Tensor rounded(const Operand& operand) {
    const int64_t terms = operand.terms();
    const int64_t padded = product_.hadamard ? (terms + block_ - 1) / block_ * block_ : terms;
    const Tensor values = arena_.take(DType::f32, operand.rows(), padded);
    float scale = 1;
    if (product_.format == GemmFormat::nvfp4) {
      scale = scale_of_operand(prepare(operand, values));
      scale_ *= 1.0f / scale;
    }
    parallel_ranges(values.rows, block_, [&](int64_t first, int64_t count) {
      if (product_.format != GemmFormat::nvfp4) copy_rows(operand, first, count, values);
      for_each_square(values, first, count, block_, [&](const Square& square, int64_t col) {
        round(operand.kind, square, scale, first, col, values.cols);
      });
    });
    return values;
  }

  // Returns the factor by which the product of the rounded operands must be multiplied.
  float scale() const { return scale_; }

 private:
  // Copies the operand, with or without the Hadamard transform. Returns its largest magnitude.
  float prepare(const Operand& operand, Tensor values) const {
    const OperandLoops& loops = operand_loops();
    std::vector<float> largest(static_cast<size_t>((values.rows + block_ - 1) / block_));
    parallel_ranges(values.rows, block_, [&](int64_t first, int64_t count) {
      copy_rows(operand, first, count, values);
      if (product_.hadamard) {
        for_each_square(values, first, count, block_, [&](const Square& square, int64_t) {
          loops.hadamard(square.values, square.rows, square.stride);
        });
      }
      largest[static_cast<size_t>(first / block_)] =
          loops.largest(reinterpret_cast<const float*>(values.at(first, 0)), count * values.cols);
    });
    return largest.empty() ? 0 : *std::ranges::max_element(largest);
  }

  void round(OperandKind kind, Square square, float scale, int64_t row, int64_t col,
             int64_t terms) const {
    const OperandLoops& loops = operand_loops();
    square.is_one_block = kind == OperandKind::weight;
    if (product_.format == GemmFormat::tf32) return loops.tf32(square);
    if (product_.format == GemmFormat::fp8) return loops.fp8(square);
    if (product_.format == GemmFormat::mxfp8) return loops.mxfp8(square);
    loops.nvfp4(square, {.scale = scale,
                         .by_chance = kind == OperandKind::gradient,
                         .seed = product_.seed,
                         .index = static_cast<uint64_t>((product_.first_row + row) * terms + col),
                         .step = static_cast<uint64_t>(terms)});
  }

  QuantizedProduct product_;
  Arena& arena_;
  int64_t block_;
  float scale_ = 1;
};

// Computes c = scale * product + bias, or c += scale * product.
void write_product(Tensor product, float scale, ConstTensor bias, GemmMode mode, Tensor c) {
  const kernels::Loops& loops = kernels::loops(c.dtype);
  std::vector<float> biases(static_cast<size_t>(bias.cols));
  if (!bias.empty()) {
    kernels::loops(bias.dtype).to_values(bias.data, biases.data(), bias.cols);
  }
  const auto write = mode == GemmMode::accumulate ? loops.add_values : loops.from_values;
  parallel_rows(c.rows, c.cols, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      auto* const values = reinterpret_cast<float*>(product.at(row, 0));
      if (scale != 1) {
        for (int64_t col = 0; col < c.cols; ++col) values[col] *= scale;
      }
      for (size_t col = 0; col < biases.size(); ++col) values[col] += biases[col];
      write(values, c.at(row, 0), c.cols);
    }
  });
}

}  // namespace

void quantized_gemm(const QuantizedProduct& product, ConstTensor a, Transpose transpose_a,
                    ConstTensor b, Transpose transpose_b, Tensor c, GemmMode mode, ConstTensor bias,
                    BitsOf bits, Arena& arena) {
  const Operand left{a, transpose_a == Transpose::yes, product.a};
  const Operand right{b, transpose_b == Transpose::no, product.b};
  require_shapes(left.rows() == c.rows && right.rows() == c.cols && left.terms() == right.terms() &&
                     a.dtype != DType::f64 && c.dtype != DType::f64 &&
                     (bias.empty() || (bias.cols == c.cols && mode == GemmMode::overwrite)),
                 "quantized_gemm");
  const ArenaScope scope(arena);
  Quantizer quantizer(product, arena);
  const Tensor rounded_a = quantizer.rounded(left);
  const Tensor rounded_b = quantizer.rounded(right);
  const bool is_direct = c.dtype == DType::f32 && bias.empty() && quantizer.scale() == 1;
  if (is_direct)
    return cpu::gemm(rounded_a, Transpose::no, rounded_b, Transpose::yes, c, mode, {}, bits);
  const Tensor result = arena.take(DType::f32, c.rows, c.cols);
  cpu::gemm(rounded_a, Transpose::no, rounded_b, Transpose::yes, result, GemmMode::overwrite, {},
            bits);
  write_product(result, quantizer.scale(), bias, mode, c);
}

}  // namespace tutti::training::cpu
