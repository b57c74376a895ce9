#include "training/kernels/cpu/kernels.h"

namespace tutti::training::cpu {
namespace {

constexpr KernelTable kKernels = {
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .relu = relu,
    .relu_backward = relu_backward,
    .add = add,
    .scale = scale,
    .all_finite = all_finite,
    .zero = zero,
    .copy = copy,
    .convert = convert,
    .dropout = dropout,
    .dropout_add = dropout_add,
    .add_column_sums = add_column_sums,
    .add_values = add_values,
    .gemm = gemm,
    .quantized_gemm = quantized_gemm,
    .embedding = embedding,
    .embedding_backward = embedding_backward,
    .rope = rope,
    .causal_attention = causal_attention,
    .causal_attention_backward = causal_attention_backward,
    .merge_attention = merge_attention,
    .cross_entropy_sums = cross_entropy_sums,
    .cross_entropy = cross_entropy,
    .cross_entropy_backward = cross_entropy_backward,
    .squared_error = squared_error,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .layer_norm_gradients = layer_norm_gradients,
    .rms_norm = rms_norm,
    .rms_norm_backward = rms_norm_backward,
    .rms_norm_gradients = rms_norm_gradients,
    .column_moments = column_moments,
    .batch_norm = batch_norm,
    .batch_norm_sums = batch_norm_sums,
    .batch_norm_backward = batch_norm_backward,
    .convolution = convolution,
    .convolution_backward_input = convolution_backward_input,
    .convolution_backward_weight = convolution_backward_weight,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .average_pool = average_pool,
    .average_pool_backward = average_pool_backward,
};

// The CPU's backend. It is synchronous: calls return when their work is done.
class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  BackendMemory allocate(size_t bytes) const override { return training::allocate(nullptr, bytes); }
  const KernelTable& kernels() const override { return kKernels; }
  void synchronize() const override {}
};

}  // namespace

const Backend& backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace tutti::training::cpu
