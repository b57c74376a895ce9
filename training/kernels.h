// The dense kernels, all by oneDNN: the only file of the training layer that knows it.
//
// Primitives are made once per thread and shape and kept; any thread may call, and each call
// computes on that thread alone. The bits of a result depend on shapes, values and the processor's
// instruction set, nothing else. A failure of oneDNN is an Error(internal).
#pragma once

#include "training/matrix.h"

namespace tutti::training {

enum class Transpose : bool { no, yes };
enum class GemmMode { overwrite, accumulate };

// c = op(a) op(b) + bias, or c += op(a) op(b). `bias` has c.cols values, or is empty; it goes with
// `overwrite` only.
void gemm(ConstMatrix a, Transpose transpose_a, ConstMatrix b, Transpose transpose_b, Matrix c,
          GemmMode mode = GemmMode::overwrite, std::span<const float> bias = {});

// The tanh form of GELU (Hendrycks, Gimpel 2016). All matrices have one shape.
void gelu(ConstMatrix input, Matrix output);
void gelu_backward(ConstMatrix input, ConstMatrix output_gradient, Matrix input_gradient);

// Row by row. In place is allowed.
void softmax(ConstMatrix logits, Matrix probabilities);

}  // namespace tutti::training
