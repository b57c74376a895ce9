// The CPU's kernels, which the headers in kernels/ describe, for direct calls among them. All
// tensors must be in the host's memory; these functions do not check the memory space.
#pragma once

#include "training/core/backend.h"
#include "training/kernels/table.h"

namespace tutti::training::cpu {

// Returns the backend that consists of the host's memory and these kernels. A null pointer to a
// Backend means this backend, too.
const Backend& backend();

decltype(training::gelu) gelu;
decltype(training::gelu_backward) gelu_backward;
decltype(training::swiglu) swiglu;
decltype(training::swiglu_backward) swiglu_backward;
decltype(training::relu) relu;
decltype(training::relu_backward) relu_backward;
decltype(training::add) add;
decltype(training::scale) scale;
decltype(training::all_finite) all_finite;
decltype(training::zero) zero;
decltype(training::copy) copy;
decltype(training::convert) convert;
decltype(training::dropout) dropout;
decltype(training::dropout_add) dropout_add;
decltype(training::add_column_sums) add_column_sums;
decltype(training::add_values) add_values;

void gemm(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
          GemmMode mode = GemmMode::overwrite, ConstTensor bias = {},
          BitsOf bits = BitsOf::strides);
decltype(training::quantized_gemm) quantized_gemm;
decltype(training::embedding) embedding;
decltype(training::embedding_backward) embedding_backward;
decltype(training::rope) rope;
decltype(training::causal_attention) causal_attention;
decltype(training::causal_attention_backward) causal_attention_backward;
decltype(training::merge_attention) merge_attention;
decltype(training::cross_entropy_sums) cross_entropy_sums;
decltype(training::cross_entropy) cross_entropy;
decltype(training::cross_entropy_backward) cross_entropy_backward;
decltype(training::squared_error) squared_error;

decltype(training::layer_norm) layer_norm;
decltype(training::layer_norm_backward) layer_norm_backward;
decltype(training::layer_norm_gradients) layer_norm_gradients;
decltype(training::rms_norm) rms_norm;
decltype(training::rms_norm_backward) rms_norm_backward;
decltype(training::rms_norm_gradients) rms_norm_gradients;

decltype(training::column_moments) column_moments;
decltype(training::batch_norm) batch_norm;
decltype(training::batch_norm_sums) batch_norm_sums;
decltype(training::batch_norm_backward) batch_norm_backward;
decltype(training::convolution) convolution;
decltype(training::convolution_backward_input) convolution_backward_input;
decltype(training::convolution_backward_weight) convolution_backward_weight;
decltype(training::max_pool) max_pool;
decltype(training::max_pool_backward) max_pool_backward;
decltype(training::average_pool) average_pool;
decltype(training::average_pool_backward) average_pool_backward;

}  // namespace tutti::training::cpu
