// Convolution of images (kernels/image.h: NHWC) by square windows, and its transpose. Images may be
// divided over a grid of ranks (image_grid.h): then activations are those of this rank's tile.
#pragma once

#include <string>
#include <vector>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/modules/tiled_convolution.h"

namespace tutti::training {

struct ConvolutionOptions {
  int64_t outputs = 0;  // channels
  int64_t kernel = 3;   // height and width of the window
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = false;  // off: a following batch normalization has its own
  Spatial spatial = {};
  // Placement of weight and bias. If cut along the first dimension, this rank computes the outputs
  // whose weights it has; groups must be 1.
  Placement placement = {};
};

// Tensors that backward needs.
struct SavedConvolution {
  ConstTensor input;
  ConstTensor output_gradient;
  std::vector<Tensor> halo;  // of the input; transposed: of the output's gradient
};

class Convolution {
 public:
  using Saved = SavedConvolution;

  // Parameters NAME.weight, outputs x inputs / groups x kernel x kernel, normal with variance 2 /
  // (inputs / groups * kernel^2) (He et al.: Delving deep into rectifiers, 2015), and NAME.bias, 0.
  // `input`: shape of whole images. Throws Error(invalid_argument) for windows that do not fit.
  Convolution(ParameterTable& table, const std::string& name, const ImageShape& input,
              const ConvolutionOptions& options);

  // Shape of whole images with the output channels that this rank computes.
  ImageShape output() const { return map_.whole().output(); }
  // Number of elements of this rank's tile of the output.
  int64_t output_size() const { return map_.output_size(); }
  // Multiply-adds for one whole image's forward pass, for these outputs.
  double multiplications() const;
  const TiledWindows& windows() const { return map_.windows(); }

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // The weights' gradients may be deferred by the pass. `saved` must stay in place until then.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  // Skips dLoss/dInput: for a model's first layer.
  void backward_first(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  void backward_weight(Pass& pass, const Saved& saved) const;

  TiledConvolution map_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

// The transpose of the linear map of a convolution from its output to its input
// (torch.nn.ConvTranspose2d): with a kernel and a stride of 2 it doubles height and width.
class TransposedConvolution {
 public:
  using Saved = SavedConvolution;

  // Parameters NAME.weight, inputs x outputs / groups x kernel x kernel, normal as a convolution's,
  // and NAME.bias. `output_rows`, `output_columns`: rows and columns of the output beyond the
  // smallest size that a convolution maps to the input's size (PyTorch's output_padding); less than
  // the stride.
  TransposedConvolution(ParameterTable& table, const std::string& name, const ImageShape& input,
                        const ConvolutionOptions& options, int64_t output_rows = 0,
                        int64_t output_columns = 0);

  ImageShape output() const { return map_.whole().input; }
  int64_t output_size() const { return map_.input_size(); }
  double multiplications() const;
  const TiledWindows& windows() const { return map_.windows(); }

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  void backward_weight(Pass& pass, const Saved& saved) const;

  TiledConvolution map_;  // from its output to its input
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

}  // namespace tutti::training
