// Calls the kernels of the memory space in which their tensors are.
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/text.h"
#include "training/core/backend.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/observer.h"
#include "training/kernels/table.h"

namespace tutti::training {
namespace {

const Backend& backend_of(const Backend* backend) {
  return backend == nullptr ? cpu::backend() : *backend;
}

// Finds the memory space that a kernel's tensors share; empty tensors have none.
class Space {
 public:
  explicit Space(const char* kernel) : kernel_(kernel) {}

  template <bool is_const>
  void add(const BasicTensor<is_const>& tensor) {
    if (tensor.data != nullptr) add(tensor.backend);
  }
  template <bool is_const>
  void add(const BasicQkv<is_const>& all) {
    add(all.queries);
    add(all.keys);
    add(all.values);
  }
  void add(const Arena& arena) { add(arena.backend()); }
  const KernelTable& kernels() const { return backend_of(backend_).kernels(); }

 private:
  void add(const Backend* backend) {
    if (!known_) backend_ = backend;
    known_ = true;
    if (backend == backend_) return;
    throw Error(
        ErrorCode::invalid_argument,
        cat(kernel_, ": some of the kernel's tensors are in the memory of ",
            backend_of(backend_).name(), ", others in the memory of ", backend_of(backend).name()),
        {.remedy = "copy or convert them to one of these memories first"});
  }

  const char* kernel_;
  bool known_ = false;
  const Backend* backend_ = nullptr;
};

template <bool is_const>
double bytes_of(const BasicTensor<is_const>& tensor) {
  return static_cast<double>(tensor.bytes());
}
template <bool is_const>
double bytes_of(const BasicQkv<is_const>& all) {
  return bytes_of(all.queries) + bytes_of(all.keys) + bytes_of(all.values);
}
double bytes_of(const Arena&) { return 0; }

// A kernel call. The object is destroyed at the end of the full expression, and then reports the
// call to the thread's observer. A tensor that is both read and written is passed twice, so that
// its bytes count twice.
class Call {
 public:
  template <typename... Places>
  Call(const char* kernel, const KernelTable& kernels, const Places&... places)
      : kernels_(kernels), span_(kernel) {
    if (span_.observed()) [[unlikely]]
      span_.set_bytes((bytes_of(places) + ...));
  }

  // Sets the number of floating-point operations.
  template <typename Count>
  const Call& computing(const Count& operations) {
    if (span_.observed()) [[unlikely]]
      span_.set_operations(operations());
    return *this;
  }
  const KernelTable* operator->() const { return &kernels_; }

 private:
  const KernelTable& kernels_;
  KernelSpan span_;
};

// Returns a call of a kernel in the memory space that all arguments share.
template <typename... Places>
Call call(const char* kernel, const Places&... places) {
  Space space(kernel);
  (space.add(places), ...);
  return Call(kernel, space.kernels(), places...);
}

// Returns a call for a copy. One of the two tensors may be in the host's memory and the other in a
// backend's memory.
Call call_between(const char* kernel, ConstTensor x, ConstTensor y) {
  if (x.backend != nullptr && y.backend != nullptr) return call(kernel, x, y);
  const Backend* const backend = x.backend != nullptr ? x.backend : y.backend;
  return Call(kernel, backend_of(backend).kernels(), x, y);
}

// Returns the name of a product by its transpositions, as in BLAS: "nt" for y = x W^T, "nn" for the
// gradient of x, and "tn" for the gradient of W.
const char* name_of_product(Transpose a, Transpose b) {
  if (a == Transpose::no) return b == Transpose::no ? "gemm nn" : "gemm nt";
  return b == Transpose::no ? "gemm tn" : "gemm tt";
}

double operations_of_product(ConstTensor a, Transpose transpose_a, ConstTensor c) {
  const int64_t terms = transpose_a == Transpose::no ? a.cols : a.rows;
  return 2 * static_cast<double>(c.size()) * static_cast<double>(terms);
}

// Returns the first rows of `table`, as many as `indices` selects (at most all). The kernel's byte
// count uses them instead of the whole table.
template <bool is_const>
BasicTensor<is_const> looked_up(const BasicTensor<is_const>& table,
                                std::span<const int32_t> indices) {
  return table.row_range(0, std::min(table.rows, std::ssize(indices)));
}

// Returns the number of floating-point operations of one matrix product of attention. Counts only
// the keys to which each query attends. The forward pass has two products (scores, output), the
// backward pass five (scores again, and the gradients of probabilities, queries, keys and values).
double operations_of_product(const AttentionShape& shape) {
  double seen = 0;
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const auto at = static_cast<size_t>(row);
    const int64_t end = shape.ends.empty() ? row % shape.context + 1 : shape.ends[at];
    seen += static_cast<double>(end - (shape.starts.empty() ? 0 : shape.starts[at]));
  }
  return 2 * seen * static_cast<double>(shape.width());
}

// Returns the operations of one of a convolution's three passes; `images` are its outputs, or their
// gradients.
double operations_of(const ConvolutionShape& shape, ConstTensor images) {
  return 2 * static_cast<double>(images.size()) * static_cast<double>(shape.weights());
}

}  // namespace

void gelu(ConstTensor x, Tensor y) { call("gelu", x, y)->gelu(x, y); }

void gelu_backward(ConstTensor x, ConstTensor dy, Tensor dx) {
  call("gelu_backward", x, dy, dx)->gelu_backward(x, dy, dx);
}

void swiglu(ConstTensor gate, ConstTensor up, Tensor y) {
  call("swiglu", gate, up, y)->swiglu(gate, up, y);
}

void swiglu_backward(ConstTensor gate, ConstTensor up, ConstTensor dy, Tensor dgate, Tensor dup) {
  call("swiglu_backward", gate, up, dy, dgate, dup)->swiglu_backward(gate, up, dy, dgate, dup);
}

void relu(ConstTensor x, Tensor y) { call("relu", x, y)->relu(x, y); }

void relu_backward(ConstTensor y, ConstTensor dy, Tensor dx) {
  call("relu_backward", y, dy, dx)->relu_backward(y, dy, dx);
}

void add(ConstTensor a, ConstTensor b, Tensor y) { call("add", a, b, y)->add(a, b, y); }

void scale(ConstTensor x, Tensor y, double factor) { call("scale", x, y)->scale(x, y, factor); }

Later<bool> all_finite(ConstTensor x) { return call("all_finite", x)->all_finite(x); }

void zero(Tensor x) { call("zero", x)->zero(x); }

void copy(ConstTensor x, Tensor y) { call_between("copy", x, y)->copy(x, y); }

void convert(ConstTensor x, Tensor y) { call_between("convert", x, y)->convert(x, y); }

void dropout(ConstTensor x, Tensor y, double p, const DropoutAt& at) {
  call("dropout", x, y)->dropout(x, y, p, at);
}

void dropout_add(ConstTensor x, ConstTensor residual, Tensor y, double p, const DropoutAt& at) {
  call("dropout_add", x, residual, y)->dropout_add(x, residual, y, p, at);
}

void add_column_sums(ConstTensor dy, Tensor bias_gradient, Arena& arena) {
  call("add_column_sums", dy, bias_gradient, bias_gradient, arena)
      ->add_column_sums(dy, bias_gradient, arena);
}

void add_values(ConstTensor values, Tensor gradient) {
  call("add_values", values, gradient, gradient)->add_values(values, gradient);
}

void gemm(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
          GemmMode mode, ConstTensor bias, BitsOf bits) {
  const Tensor added_to = mode == GemmMode::accumulate ? c : Tensor{};
  call(name_of_product(transpose_a, transpose_b), a, b, c, added_to, bias)
      .computing([&] { return operations_of_product(a, transpose_a, c); })
      ->gemm(a, transpose_a, b, transpose_b, c, mode, bias, bits);
}

void quantized_gemm(const QuantizedProduct& product, ConstTensor a, Transpose transpose_a,
                    ConstTensor b, Transpose transpose_b, Tensor c, GemmMode mode, ConstTensor bias,
                    BitsOf bits, Arena& arena) {
  const Tensor added_to = mode == GemmMode::accumulate ? c : Tensor{};
  call("quantized_gemm", a, b, c, added_to, bias, arena)
      .computing([&] { return operations_of_product(a, transpose_a, c); })
      ->quantized_gemm(product, a, transpose_a, b, transpose_b, c, mode, bias, bits, arena);
}

void embedding(ConstTensor table, PartOf rows, std::span<const int32_t> indices, Tensor output) {
  call("embedding", looked_up(table, indices), output)->embedding(table, rows, indices, output);
}

void embedding_backward(ConstTensor dy, std::span<const int32_t> indices, PartOf rows,
                        Tensor table_gradient, Arena& arena) {
  const Tensor added_to = looked_up(table_gradient, indices);
  call("embedding_backward", dy, added_to, added_to, arena)
      ->embedding_backward(dy, indices, rows, table_gradient, arena);
}

void rope(Tensor rows, int64_t heads, int64_t head_size, int64_t context, const void* table,
          int direction) {
  call("rope", rows, rows)->rope(rows, heads, head_size, context, table, direction);
}

void causal_attention(const AttentionShape& shape, const ConstQkv& inputs, Tensor output,
                      Tensor lse, Arena& arena) {
  call("causal_attention", inputs, output, lse, arena)
      .computing([&] { return 2 * operations_of_product(shape); })
      ->causal_attention(shape, inputs, output, lse, arena);
}

void causal_attention_backward(const AttentionShape& shape, const ConstQkv& inputs,
                               ConstTensor output, ConstTensor lse, ConstTensor output_gradient,
                               const Qkv& gradients, Arena& arena) {
  call("causal_attention_backward", inputs, output, lse, output_gradient, gradients, arena)
      .computing([&] { return 5 * operations_of_product(shape); })
      ->causal_attention_backward(shape, inputs, output, lse, output_gradient, gradients, arena);
}

void merge_attention(const AttentionShape& shape, ConstTensor other, ConstTensor other_lse,
                     Tensor output, Tensor lse) {
  call("merge_attention", other, other_lse, output, output, lse, lse)
      ->merge_attention(shape, other, other_lse, output, lse);
}

void cross_entropy_sums(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                        Tensor sums) {
  call("cross_entropy_sums", logits, sums)->cross_entropy_sums(logits, targets, classes, sums);
}

Later<Loss> cross_entropy(ConstTensor sums, std::span<const int32_t> targets, Tensor losses,
                          Tensor statistics) {
  return call("cross_entropy", sums, losses, statistics)
      ->cross_entropy(sums, targets, losses, statistics);
}

void cross_entropy_backward(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                            ConstTensor statistics, double scale, Tensor logits_gradient) {
  call("cross_entropy_backward", logits, statistics, logits_gradient)
      ->cross_entropy_backward(logits, targets, classes, statistics, scale, logits_gradient);
}

Later<Loss> squared_error(ConstTensor predictions, std::span<const float> targets, Tensor errors) {
  return call("squared_error", predictions, errors)->squared_error(predictions, targets, errors);
}

void layer_norm(ConstTensor x, ConstTensor gain, ConstTensor bias, double epsilon, Tensor y,
                Tensor statistics) {
  call("layer_norm", x, gain, bias, y, statistics)
      ->layer_norm(x, gain, bias, epsilon, y, statistics);
}

void layer_norm_backward(ConstTensor x, ConstTensor gain, ConstTensor dy, ConstTensor statistics,
                         Tensor dx) {
  call("layer_norm_backward", x, gain, dy, statistics, dx)
      ->layer_norm_backward(x, gain, dy, statistics, dx);
}

void layer_norm_gradients(ConstTensor x, ConstTensor dy, ConstTensor statistics,
                          Tensor gain_gradient, Tensor bias_gradient, Arena& arena) {
  call("layer_norm_gradients", x, dy, statistics, gain_gradient, gain_gradient, bias_gradient,
       bias_gradient, arena)
      ->layer_norm_gradients(x, dy, statistics, gain_gradient, bias_gradient, arena);
}

void rms_norm(ConstTensor x, ConstTensor gain, double epsilon, Tensor y, Tensor statistics) {
  call("rms_norm", x, gain, y, statistics)->rms_norm(x, gain, epsilon, y, statistics);
}

void rms_norm_backward(ConstTensor x, ConstTensor gain, ConstTensor dy, ConstTensor statistics,
                       Tensor dx) {
  call("rms_norm_backward", x, gain, dy, statistics, dx)
      ->rms_norm_backward(x, gain, dy, statistics, dx);
}

void rms_norm_gradients(ConstTensor x, ConstTensor dy, ConstTensor statistics, Tensor gain_gradient,
                        Arena& arena) {
  call("rms_norm_gradients", x, dy, statistics, gain_gradient, gain_gradient, arena)
      ->rms_norm_gradients(x, dy, statistics, gain_gradient, arena);
}

void column_moments(ConstTensor x, std::span<double> moments, Arena& arena) {
  call("column_moments", x, arena)->column_moments(x, moments, arena);
}

void batch_norm(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor bias,
                bool relu, Tensor y, Arena& arena) {
  call("batch_norm", x, statistics, gain, bias, y, arena)
      ->batch_norm(x, statistics, gain, bias, relu, y, arena);
}

void batch_norm_sums(ConstTensor x, ConstTensor statistics, ConstTensor y, ConstTensor dy,
                     std::span<double> sums, Arena& arena) {
  call("batch_norm_sums", x, statistics, y, dy, arena)
      ->batch_norm_sums(x, statistics, y, dy, sums, arena);
}

void batch_norm_backward(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor y,
                         ConstTensor dy, std::span<const double> sums, double count, Tensor dx,
                         Arena& arena) {
  call("batch_norm_backward", x, statistics, gain, y, dy, dx, arena)
      ->batch_norm_backward(x, statistics, gain, y, dy, sums, count, dx, arena);
}

void convolution(const ConvolutionShape& shape, ConstTensor x, ConstTensor weight, ConstTensor bias,
                 Tensor y, Arena& arena) {
  call("convolution", x, weight, bias, y, arena)
      .computing([&] { return operations_of(shape, y); })
      ->convolution(shape, x, weight, bias, y, arena);
}

void convolution_backward_input(const ConvolutionShape& shape, ConstTensor dy, ConstTensor weight,
                                Tensor dx, Arena& arena) {
  call("convolution_backward_input", dy, weight, dx, arena)
      .computing([&] { return operations_of(shape, dy); })
      ->convolution_backward_input(shape, dy, weight, dx, arena);
}

void convolution_backward_weight(const ConvolutionShape& shape, ConstTensor x, ConstTensor dy,
                                 Tensor weight_gradient, Arena& arena) {
  call("convolution_backward_weight", x, dy, weight_gradient, weight_gradient, arena)
      .computing([&] { return operations_of(shape, dy); })
      ->convolution_backward_weight(shape, x, dy, weight_gradient, arena);
}

void max_pool(const PoolingShape& shape, ConstTensor x, Tensor y, Tensor places) {
  call("max_pool", x, y, places)->max_pool(shape, x, y, places);
}

void max_pool_backward(const PoolingShape& shape, ConstTensor dy, ConstTensor places, Tensor dx) {
  call("max_pool_backward", dy, places, dx)->max_pool_backward(shape, dy, places, dx);
}

void average_pool(const PoolingShape& shape, ConstTensor x, Tensor y) {
  call("average_pool", x, y)->average_pool(shape, x, y);
}

void average_pool_backward(const PoolingShape& shape, ConstTensor dy, Tensor dx) {
  call("average_pool_backward", dy, dx)->average_pool_backward(shape, dy, dx);
}

}  // namespace tutti::training
