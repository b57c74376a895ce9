// Tests products whose operands are rounded, in blocks along the summed dimension, before they are
// multiplied.
#include "training/kernels/quantized_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/mix_bits.h"
#include "base/text.h"
#include "tests/training/kernels/operand_reference.h"
#include "tests/training/support/host_tensor.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/operand_loops.h"

namespace tutti::training::testing {
namespace {

using Rows = std::vector<std::vector<float>>;

size_t block_of(GemmFormat format) {
  if (format == GemmFormat::mxfp8) return 32;
  return format == GemmFormat::nvfp4 ? 16 : 128;
}

// Returns the operand as rows along the summed dimension.
Rows rows_of(ConstTensor tensor, bool transposed) {
  Rows rows(static_cast<size_t>(transposed ? tensor.cols : tensor.rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    for (int64_t j = 0; j < (transposed ? tensor.rows : tensor.cols); ++j) {
      rows[i].push_back(static_cast<float>(transposed ? get(tensor, j, row) : get(tensor, row, j)));
    }
  }
  return rows;
}

struct Rounded {
  Rows rows;
  double scale = 1;
};

class Reference {
 public:
  explicit Reference(const QuantizedProduct& product) : product_(product) {}

  Rounded rounded(Rows rows, OperandKind kind) const {
    const size_t block = block_of(product_.format);
    if (product_.hadamard) transform(rows);
    Rounded result{rows};
    float scale = 1;
    if (product_.format == GemmFormat::nvfp4) {
      double most = 0;
      for (const auto& row : rows) most = std::max(most, largest_of(row));
      scale = nvfp4_scale(static_cast<float>(most));
      result.scale = 1.0f / scale;
    }
    const size_t terms = rows.front().size();
    const bool square = kind == OperandKind::weight && product_.format != GemmFormat::mxfp8;
    const size_t height = square ? block : 1;
    for (size_t row = 0; row < rows.size(); row += height) {
      for (size_t col = 0; col < terms; col += block) {
        std::vector<std::pair<size_t, size_t>> places;
        for (size_t i = row; i < std::min(rows.size(), row + height); ++i) {
          for (size_t j = col; j < std::min(terms, col + block); ++j) places.emplace_back(i, j);
        }
        std::vector<float> values;
        for (const auto& [i, j] : places) values.push_back(rows[i][j]);
        const std::vector<float> its = round(values, kind, scale, [&](size_t at) {
          return (static_cast<uint64_t>(product_.first_row) + places[at].first) * terms +
                 places[at].second;
        });
        for (size_t at = 0; at < places.size(); ++at) {
          result.rows[places[at].first][places[at].second] = its[at];
        }
      }
    }
    return result;
  }

 private:
  template <typename Index>
  std::vector<float> round(const std::vector<float>& block, OperandKind kind, float scale,
                           const Index& index) const {
    if (product_.format == GemmFormat::tf32) return tf32_values(block);
    if (product_.format == GemmFormat::fp8) return fp8_block(block);
    if (product_.format == GemmFormat::mxfp8) return mxfp8_block(block);
    return nvfp4_block(block, scale, [&](size_t at) {
      if (kind != OperandKind::gradient) return -1.0;
      return static_cast<double>(mix_bits(product_.seed + index(at) * kGolden) >> 40) * 0x1p-24;
    });
  }

  static void transform(Rows& rows) {
    for (auto& row : rows) {
      row.resize((row.size() + 15) / 16 * 16);
      for (size_t col = 0; col < row.size(); col += 16) {
        kernels::operand_loops().hadamard(row.data() + col, 1, 16);
      }
    }
  }

  QuantizedProduct product_;
};

struct Problem {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  OperandKind a = OperandKind::activation, b = OperandKind::weight;
  DType in = DType::f32, out = DType::f32;
  enum class Mode { overwrite, bias, accumulate } mode = Mode::overwrite;
};

// Returns one of the three products of a dense layer.
Problem output(int64_t rows, int64_t inputs, int64_t outputs) {
  return {.m = rows, .n = outputs, .k = inputs, .transpose_b = true};
}
Problem input_gradient(int64_t rows, int64_t inputs, int64_t outputs) {
  return {.m = rows, .n = inputs, .k = outputs, .a = OperandKind::gradient};
}
Problem weight_gradient(int64_t rows, int64_t inputs, int64_t outputs) {
  return {.m = outputs,
          .n = inputs,
          .k = rows,
          .transpose_a = true,
          .a = OperandKind::gradient,
          .b = OperandKind::activation,
          .mode = Problem::Mode::accumulate};
}

void check(const Problem& p, GemmFormat format, int64_t first_row = 0) {
  SCOPED_TRACE(cat(p.m, " x ", p.k, " x ", p.n, p.transpose_a ? " a^T" : "",
                   p.transpose_b ? " b^T" : "", " format ", static_cast<int>(format), " in ",
                   name(p.in), " to ", name(p.out)));
  const HostTensor a =
      random_tensor(p.in, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, 1, 1, 3);
  const HostTensor b =
      random_tensor(p.in, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, 2, 0.1, 5);
  const HostTensor bias = random_tensor(p.in, 1, p.n, 3);
  const HostTensor c = random_tensor(p.out, p.m, p.n, 4, 1, 1);
  const std::vector<double> before = doubles(c);
  const bool accumulates = p.mode == Problem::Mode::accumulate;
  const bool biased = p.mode == Problem::Mode::bias;
  const QuantizedProduct product{
      .format = format,
      .a = p.a,
      .b = p.b,
      .hadamard = format == GemmFormat::nvfp4 && p.b == OperandKind::activation,
      .seed = 31,
      .first_row = first_row};
  Arena arena;
  quantized_gemm(product, a, Transpose{p.transpose_a}, b, Transpose{p.transpose_b}, c,
                 accumulates ? GemmMode::accumulate : GemmMode::overwrite,
                 biased ? ConstTensor(bias) : ConstTensor{}, BitsOf::strides, arena);
  EXPECT_TRUE(c.gaps_untouched());
  EXPECT_EQ(arena.mark(), 0u);
  const Reference reference(product);
  const Rounded left = reference.rounded(rows_of(a, p.transpose_a), p.a);
  const Rounded right = reference.rounded(rows_of(b, !p.transpose_b), p.b);
  std::vector<double> wanted;
  for (size_t i = 0; i < left.rows.size(); ++i) {
    for (size_t j = 0; j < right.rows.size(); ++j) {
      double sum = 0;
      for (size_t t = 0; t < left.rows[i].size(); ++t) {
        sum += static_cast<double>(left.rows[i][t]) * right.rows[j][t];
      }
      sum *= left.scale * right.scale;
      if (biased) sum += get(bias, 0, static_cast<int64_t>(j));
      if (accumulates) sum += before[wanted.size()];
      wanted.push_back(sum);
    }
  }
  const std::vector<double> found = doubles(c);
  EXPECT_LT(relative_distance(found, wanted), p.out == DType::f32 ? 1e-6 : 4e-3);
}

class Formats : public ::testing::TestWithParam<GemmFormat> {};
INSTANTIATE_TEST_SUITE_P(All, Formats,
                         ::testing::Values(GemmFormat::tf32, GemmFormat::fp8, GemmFormat::mxfp8,
                                           GemmFormat::nvfp4));

TEST_P(Formats, MultiplyRoundedOperands) {
  for (const auto& [rows, inputs, outputs] :
       {std::tuple{1, 1, 1}, std::tuple{3, 17, 5}, std::tuple{130, 33, 300},
        std::tuple{40, 272, 129}, std::tuple{64, 128, 256}}) {
    for (const Problem& p : {output(rows, inputs, outputs), input_gradient(rows, inputs, outputs),
                             weight_gradient(rows, inputs, outputs)}) {
      check(p, GetParam());
    }
  }
}

TEST_P(Formats, GoWithTypesAndBiases) {
  for (const DType in : {DType::f32, DType::bf16, DType::f16}) {
    Problem p = output(70, 96, 48);
    p.in = p.out = in;
    p.mode = Problem::Mode::bias;
    check(p, GetParam());
    p.out = DType::f32;
    check(p, GetParam());
    p = weight_gradient(70, 96, 48);
    p.in = in;
    check(p, GetParam());
    p.out = in;
    check(p, GetParam());
  }
}

// A part of the gradient's rows uses the same random numbers for these rows as the whole gradient.
TEST_P(Formats, RandomNumbersFollowTheRow) { check(input_gradient(20, 40, 60), GetParam(), 77); }

TEST_P(Formats, ThreadsChangeNoBit) {
  for (const Problem& p : {output(300, 130, 260), weight_gradient(300, 130, 260)}) {
    const HostTensor a =
        random_tensor(p.in, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, 1);
    const HostTensor b =
        random_tensor(p.in, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, 2);
    const auto product = [&] {
      HostTensor c(DType::f32, p.m, p.n);
      Arena arena;
      quantized_gemm({.format = GetParam(), .a = p.a, .b = p.b}, a, Transpose{p.transpose_a}, b,
                     Transpose{p.transpose_b}, c, GemmMode::overwrite, {}, BitsOf::strides, arena);
      return c;
    };
    const HostTensor alone = product();
    ThreadPool pool(3);
    const UseThreads use(pool);
    EXPECT_TRUE(same_bits(product(), alone));
  }
}

// A NaN or infinity spoils all products of its block. tf32 has no blocks.
TEST_P(Formats, PropagateNaNs) {
  HostTensor a = random_tensor(DType::f32, 2, 256, 1);
  const HostTensor b = random_tensor(DType::f32, 4, 256, 2);
  set(a, 1, 200, INFINITY);
  HostTensor c(DType::f32, 2, 4);
  Arena arena;
  quantized_gemm({.format = GetParam()}, a, Transpose::no, b, Transpose::yes, c,
                 GemmMode::overwrite, {}, BitsOf::strides, arena);
  for (int64_t col = 0; col < 4; ++col) {
    EXPECT_TRUE(std::isfinite(get(c, 0, col)));
    EXPECT_TRUE(GetParam() == GemmFormat::tf32 ? std::isinf(get(c, 1, col))
                                               : std::isnan(get(c, 1, col)));
  }
}

}  // namespace
}  // namespace tutti::training::testing
