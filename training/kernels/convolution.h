// Convolution (cross-correlation, as in deep learning) of images by oneDNN; in f64, for gradient
// checks, by im2col and a matrix product.
//
// x: samples x input.size(), y: samples x output().size(), contiguous, of the same type (image.h).
// weight: outputs x (inputs / groups * window height * window width), as in PyTorch. Thread-safe;
// the calling thread's pool computes parts (thread_pool.h). Temporaries come from the arena. f16,
// and bf16 on a processor without AVX-512, are converted to f32 and back. A failure of the library
// throws Error(internal); a shape for which it has no correct implementation throws
// Error(unsupported).
#pragma once

#include <optional>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/kernels/image.h"

namespace tutti::training {

struct ConvolutionShape {
  ImageShape input;
  Window window;
  int64_t outputs = 0;  // number of output channels
  // Number of equal groups of input and output channels; each group of outputs reads one group of
  // inputs.
  int64_t groups = 1;
  std::optional<WindowTile> tile = {};  // unset: all windows that fit into the image

  WindowTile windows() const { return tile ? *tile : WindowTile::all(input, window); }
  ImageShape output() const {
    const WindowTile all = windows();
    return {all.height, all.width, outputs};
  }
  int64_t weights() const {  // Returns the number of weights per output channel.
    return input.channels / groups * window.height * window.width;
  }
};

// Computes y. bias: 1 x outputs, or empty.
void convolution(const ConvolutionShape& shape, ConstTensor x, ConstTensor weight, ConstTensor bias,
                 Tensor y, Arena& arena);
void convolution_backward_input(const ConvolutionShape& shape, ConstTensor dy, ConstTensor weight,
                                Tensor dx, Arena& arena);
// Adds the gradient of the weights to `weight_gradient`, which is of any floating-point type; sums
// are in float (f64: double).
void convolution_backward_weight(const ConvolutionShape& shape, ConstTensor x, ConstTensor dy,
                                 Tensor weight_gradient, Arena& arena);

}  // namespace tutti::training
