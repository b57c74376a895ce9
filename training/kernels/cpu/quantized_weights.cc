#include "training/kernels/quantized_weights.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/reduce.h"
#include "base/text.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"
#include "training/kernels/cpu/weight_loops.h"

namespace tutti::training {
namespace kernels {
namespace {

const WeightLoops* selected_weight_loops() {
  switch (selected_instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::avx2:
      return avx2::kWeightLoops;
    case InstructionSet::avx512:
      return avx512::kWeightLoops;
#endif
    default:
      return baseline::kWeightLoops;
  }
}

}  // namespace

const WeightLoops& weight_loops(int format) {
  static const WeightLoops* const selected = selected_weight_loops();
  return selected[format];
}

}  // namespace kernels

namespace {

constexpr std::array<std::string_view, kernels::kWeightFormats> kWeightFormatNames = {
    "q8_0", "q4_0", "nf4"};

const kernels::WeightLoops& loops_of(WeightFormat format) {
  return kernels::weight_loops(static_cast<int>(format));
}

void decode_row(const QuantizedMatrix& w, int64_t row, float* values) {
  dequantize_row(w.format, {w.row(row), static_cast<size_t>(bytes_of_row(w.format, w.cols))},
                 {values, static_cast<size_t>(w.cols)});
}

// Returns rows of a matrix as a tensor of a type. The tensor is valid until the calling thread's
// next call.
ConstTensor rows_in(DType type, const QuantizedMatrix& w, int64_t first, int64_t count) {
  thread_local std::vector<float> values, stored;
  values.resize(std::max(values.size(), static_cast<size_t>(count * w.cols)));
  for (int64_t i = 0; i < count; ++i) decode_row(w, first + i, values.data() + i * w.cols);
  if (type == DType::f32) {
    return tensor_at(static_cast<const void*>(values.data()), type, count, w.cols);
  }
  stored.resize(values.size());  // has room for any smaller type
  kernels::loops(type).from_values(values.data(), stored.data(), count * w.cols);
  return tensor_at(static_cast<const void*>(stored.data()), type, count, w.cols);
}

// Returns the number of rows whose values stay in a core's cache.
int64_t rows_of_a_tile(int64_t cols) {
  constexpr int64_t kValues = 1 << 16;
  constexpr int64_t kLeast = 16;
  return std::max(kLeast, kValues / std::max<int64_t>(1, cols) / kLeast * kLeast);
}

}  // namespace

std::string_view name(WeightFormat format) {
  return kWeightFormatNames[static_cast<size_t>(format)];
}

std::optional<WeightFormat> weight_format_named(std::string_view name) {
  const auto found = std::ranges::find(kWeightFormatNames, name);
  if (found == kWeightFormatNames.end()) return std::nullopt;
  return static_cast<WeightFormat>(found - kWeightFormatNames.begin());
}

int64_t bytes_of_row(WeightFormat format, int64_t cols) {
  const kernels::WeightLoops& loops = loops_of(format);
  return (cols + loops.block - 1) / loops.block * loops.bytes;
}

void quantize_row(WeightFormat format, std::span<const float> values, std::span<std::byte> bytes) {
  const kernels::WeightLoops& loops = loops_of(format);
  const int64_t blocks = std::ssize(values) / loops.block;
  loops.encode(values.data(), bytes.data(), blocks);
  const auto rest = values.subspan(static_cast<size_t>(blocks * loops.block));
  if (rest.empty()) return;
  std::array<float, kernels::kLargestWeightBlock> last{};
  std::ranges::copy(rest, last.begin());
  loops.encode(last.data(), bytes.data() + blocks * loops.bytes, 1);
}

void dequantize_row(WeightFormat format, std::span<const std::byte> bytes,
                    std::span<float> values) {
  const kernels::WeightLoops& loops = loops_of(format);
  const int64_t blocks = std::ssize(values) / loops.block;
  loops.decode(bytes.data(), values.data(), blocks);
  const auto rest = values.subspan(static_cast<size_t>(blocks * loops.block));
  if (rest.empty()) return;
  std::array<float, kernels::kLargestWeightBlock> last;
  loops.decode(bytes.data() + blocks * loops.bytes, last.data(), 1);
  std::copy_n(last.begin(), rest.size(), rest.begin());
}

void multiply_by_weights(ConstTensor x, const QuantizedMatrix& w, ConstTensor bias, Tensor y) {
  require_host(x.backend);
  require_shapes(x.cols == w.cols && y.rows == x.rows && y.cols == w.rows && x.dtype == y.dtype &&
                     x.dtype != DType::f64 && (bias.empty() || bias.cols == y.cols),
                 "multiply_by_weights");
  if (y.empty()) return;
  parallel_ranges(w.rows, rows_of_a_tile(w.cols), [&](int64_t first, int64_t count) {
    cpu::gemm(x, Transpose::no, rows_in(x.dtype, w, first, count), Transpose::yes,
              y.col_range(first, count), GemmMode::overwrite,
              bias.empty() ? bias : bias.col_range(first, count));
  });
}

void look_up(const QuantizedMatrix& table, std::span<const int32_t> indices, Tensor output) {
  require_host(output.backend);
  require_shapes(
      output.rows == std::ssize(indices) && output.cols == table.cols && output.dtype != DType::f64,
      "look_up");
  for (int64_t row = 0; row < output.rows; ++row) {
    const int32_t index = indices[static_cast<size_t>(row)];
    if (index < 0 || index >= table.rows) {
      throw Error(ErrorCode::invalid_argument,
                  cat("the index ", index, " is outside the table of ", table.rows, " rows"));
    }
    cpu::copy(rows_in(output.dtype, table, index, 1), output.row_range(row, 1));
  }
}

}  // namespace tutti::training
