// Each kernel's call, in the memory space of its tensors.
#include <string>

#include "base/text.h"
#include "training/core/backend.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/table.h"

namespace tutti::training {
namespace {

const Backend& backend_of(const Backend* backend) {
  return backend == nullptr ? cpu::backend() : *backend;
}

// The space in which a kernel's tensors are; those that are left out are in none.
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
    throw Error(ErrorCode::invalid_argument,
                cat(kernel_, ": some of its tensors are in the memory of ",
                    backend_of(backend_).name(), ", some in that of ", backend_of(backend).name()),
                {.remedy = "copy or convert them to one of these first"});
  }

  const char* kernel_;
  bool known_ = false;
  const Backend* backend_ = nullptr;
};

// The kernels of the one space where all of these are.
template <typename... Places>
const KernelTable& kernels_of(const char* kernel, const Places&... places) {
  Space space(kernel);
  (space.add(places), ...);
  return space.kernels();
}

// Of what moves elements: one of the two may be in the host's memory, wherever the other is.
const KernelTable& kernels_between(const char* kernel, ConstTensor x, ConstTensor y) {
  if (x.backend != nullptr && y.backend != nullptr) return kernels_of(kernel, x, y);
  return backend_of(x.backend != nullptr ? x.backend : y.backend).kernels();
}

}  // namespace

void gelu(ConstTensor x, Tensor y) { kernels_of("gelu", x, y).gelu(x, y); }

void gelu_backward(ConstTensor x, ConstTensor dy, Tensor dx) {
  kernels_of("gelu_backward", x, dy, dx).gelu_backward(x, dy, dx);
}

void swiglu(ConstTensor gate, ConstTensor up, Tensor y) {
  kernels_of("swiglu", gate, up, y).swiglu(gate, up, y);
}

void swiglu_backward(ConstTensor gate, ConstTensor up, ConstTensor dy, Tensor dgate, Tensor dup) {
  kernels_of("swiglu_backward", gate, up, dy, dgate, dup).swiglu_backward(gate, up, dy, dgate, dup);
}

void relu(ConstTensor x, Tensor y) { kernels_of("relu", x, y).relu(x, y); }

void relu_backward(ConstTensor y, ConstTensor dy, Tensor dx) {
  kernels_of("relu_backward", y, dy, dx).relu_backward(y, dy, dx);
}

void add(ConstTensor a, ConstTensor b, Tensor y) { kernels_of("add", a, b, y).add(a, b, y); }

void scale(ConstTensor x, Tensor y, double factor) {
  kernels_of("scale", x, y).scale(x, y, factor);
}

Later<bool> all_finite(ConstTensor x) { return kernels_of("all_finite", x).all_finite(x); }

void zero(Tensor x) { kernels_of("zero", x).zero(x); }

void copy(ConstTensor x, Tensor y) { kernels_between("copy", x, y).copy(x, y); }

void convert(ConstTensor x, Tensor y) { kernels_between("convert", x, y).convert(x, y); }

void dropout(ConstTensor x, Tensor y, double p, const DropoutAt& at) {
  kernels_of("dropout", x, y).dropout(x, y, p, at);
}

void add_column_sums(ConstTensor dy, Tensor bias_gradient, Arena& arena) {
  kernels_of("add_column_sums", dy, bias_gradient, arena).add_column_sums(dy, bias_gradient, arena);
}

void add_values(ConstTensor values, Tensor gradient) {
  kernels_of("add_values", values, gradient).add_values(values, gradient);
}

void gemm(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
          GemmMode mode, ConstTensor bias, BitsOf bits) {
  kernels_of("gemm", a, b, c, bias).gemm(a, transpose_a, b, transpose_b, c, mode, bias, bits);
}

void embedding(ConstTensor table, PartOf rows, std::span<const int32_t> indices, Tensor output) {
  kernels_of("embedding", table, output).embedding(table, rows, indices, output);
}

void embedding_backward(ConstTensor dy, std::span<const int32_t> indices, PartOf rows,
                        Tensor table_gradient, Arena& arena) {
  kernels_of("embedding_backward", dy, table_gradient, arena)
      .embedding_backward(dy, indices, rows, table_gradient, arena);
}

void rope(Tensor rows, int64_t heads, int64_t head_size, int64_t context, const void* table,
          int direction) {
  kernels_of("rope", rows).rope(rows, heads, head_size, context, table, direction);
}

void causal_attention(const AttentionShape& shape, const ConstQkv& inputs, Tensor output,
                      Tensor lse, Arena& arena) {
  kernels_of("causal_attention", inputs, output, lse, arena)
      .causal_attention(shape, inputs, output, lse, arena);
}

void causal_attention_backward(const AttentionShape& shape, const ConstQkv& inputs,
                               ConstTensor output, ConstTensor lse, ConstTensor output_gradient,
                               const Qkv& gradients, Arena& arena) {
  kernels_of("causal_attention_backward", inputs, output, lse, output_gradient, gradients, arena)
      .causal_attention_backward(shape, inputs, output, lse, output_gradient, gradients, arena);
}

void merge_attention(const AttentionShape& shape, ConstTensor other, ConstTensor other_lse,
                     Tensor output, Tensor lse) {
  kernels_of("merge_attention", other, other_lse, output, lse)
      .merge_attention(shape, other, other_lse, output, lse);
}

void cross_entropy_sums(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                        Tensor sums) {
  kernels_of("cross_entropy_sums", logits, sums).cross_entropy_sums(logits, targets, classes, sums);
}

Later<Loss> cross_entropy(ConstTensor sums, std::span<const int32_t> targets, Tensor losses,
                          Tensor statistics) {
  return kernels_of("cross_entropy", sums, losses, statistics)
      .cross_entropy(sums, targets, losses, statistics);
}

void cross_entropy_backward(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                            ConstTensor statistics, double scale, Tensor logits_gradient) {
  kernels_of("cross_entropy_backward", logits, statistics, logits_gradient)
      .cross_entropy_backward(logits, targets, classes, statistics, scale, logits_gradient);
}

Later<Loss> squared_error(ConstTensor predictions, std::span<const float> targets, Tensor errors) {
  return kernels_of("squared_error", predictions, errors)
      .squared_error(predictions, targets, errors);
}

void layer_norm(ConstTensor x, ConstTensor gain, ConstTensor bias, double epsilon, Tensor y,
                Tensor statistics) {
  kernels_of("layer_norm", x, gain, bias, y, statistics)
      .layer_norm(x, gain, bias, epsilon, y, statistics);
}

void layer_norm_backward(ConstTensor x, ConstTensor gain, ConstTensor dy, ConstTensor statistics,
                         Tensor dx) {
  kernels_of("layer_norm_backward", x, gain, dy, statistics, dx)
      .layer_norm_backward(x, gain, dy, statistics, dx);
}

void layer_norm_gradients(ConstTensor x, ConstTensor dy, ConstTensor statistics,
                          Tensor gain_gradient, Tensor bias_gradient, Arena& arena) {
  kernels_of("layer_norm_gradients", x, dy, statistics, gain_gradient, bias_gradient, arena)
      .layer_norm_gradients(x, dy, statistics, gain_gradient, bias_gradient, arena);
}

void rms_norm(ConstTensor x, ConstTensor gain, double epsilon, Tensor y, Tensor statistics) {
  kernels_of("rms_norm", x, gain, y, statistics).rms_norm(x, gain, epsilon, y, statistics);
}

void rms_norm_backward(ConstTensor x, ConstTensor gain, ConstTensor dy, ConstTensor statistics,
                       Tensor dx) {
  kernels_of("rms_norm_backward", x, gain, dy, statistics, dx)
      .rms_norm_backward(x, gain, dy, statistics, dx);
}

void rms_norm_gradients(ConstTensor x, ConstTensor dy, ConstTensor statistics, Tensor gain_gradient,
                        Arena& arena) {
  kernels_of("rms_norm_gradients", x, dy, statistics, gain_gradient, arena)
      .rms_norm_gradients(x, dy, statistics, gain_gradient, arena);
}

void column_moments(ConstTensor x, std::span<double> moments, Arena& arena) {
  kernels_of("column_moments", x, arena).column_moments(x, moments, arena);
}

void batch_norm(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor bias,
                bool relu, Tensor y, Arena& arena) {
  kernels_of("batch_norm", x, statistics, gain, bias, y, arena)
      .batch_norm(x, statistics, gain, bias, relu, y, arena);
}

void batch_norm_sums(ConstTensor x, ConstTensor statistics, ConstTensor y, ConstTensor dy,
                     std::span<double> sums, Arena& arena) {
  kernels_of("batch_norm_sums", x, statistics, y, dy, arena)
      .batch_norm_sums(x, statistics, y, dy, sums, arena);
}

void batch_norm_backward(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor y,
                         ConstTensor dy, std::span<const double> sums, double count, Tensor dx,
                         Arena& arena) {
  kernels_of("batch_norm_backward", x, statistics, gain, y, dy, dx, arena)
      .batch_norm_backward(x, statistics, gain, y, dy, sums, count, dx, arena);
}

void convolution(const ConvolutionShape& shape, ConstTensor x, ConstTensor weight, ConstTensor bias,
                 Tensor y, Arena& arena) {
  kernels_of("convolution", x, weight, bias, y, arena)
      .convolution(shape, x, weight, bias, y, arena);
}

void convolution_backward_input(const ConvolutionShape& shape, ConstTensor dy, ConstTensor weight,
                                Tensor dx, Arena& arena) {
  kernels_of("convolution_backward_input", dy, weight, dx, arena)
      .convolution_backward_input(shape, dy, weight, dx, arena);
}

void convolution_backward_weight(const ConvolutionShape& shape, ConstTensor x, ConstTensor dy,
                                 Tensor weight_gradient, Arena& arena) {
  kernels_of("convolution_backward_weight", x, dy, weight_gradient, arena)
      .convolution_backward_weight(shape, x, dy, weight_gradient, arena);
}

void max_pool(const PoolingShape& shape, ConstTensor x, Tensor y, Tensor places) {
  kernels_of("max_pool", x, y, places).max_pool(shape, x, y, places);
}

void max_pool_backward(const PoolingShape& shape, ConstTensor dy, ConstTensor places, Tensor dx) {
  kernels_of("max_pool_backward", dy, places, dx).max_pool_backward(shape, dy, places, dx);
}

void average_pool(const PoolingShape& shape, ConstTensor x, Tensor y) {
  kernels_of("average_pool", x, y).average_pool(shape, x, y);
}

void average_pool_backward(const PoolingShape& shape, ConstTensor dy, Tensor dx) {
  kernels_of("average_pool_backward", dy, dx).average_pool_backward(shape, dy, dx);
}

}  // namespace tutti::training
