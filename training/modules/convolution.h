// Convolution of images (kernels/image.h: NHWC) by square windows, and its transpose. Images may be
// divided over a grid of ranks (image_grid.h); activations then have only this rank's tile.
#pragma once

#include <string>
#include <vector>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/modules/tiled_convolution.h"

namespace tutti::training {

struct ConvolutionOptions {
  int64_t outputs = 0;  // number of output channels
  int64_t kernel = 3;   // height and width of the window
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = false;  // false if a batch normalization, which has a bias, follows
  Spatial spatial = {};
  // Placement of weight and bias. If it cuts the first dimension, this rank computes the outputs
  // whose weights it has; groups must then be 1.
  Placement placement = {};
};

// Tensors that backward needs.
struct SavedConvolution {
  ConstTensor input;
  ConstTensor output_gradient;
  // halo of the input; for a transposed convolution, halo of the output's gradient
  std::vector<Tensor> halo;
};

class Convolution {
 public:
  using Saved = SavedConvolution;

  // Adds parameters NAME.weight, outputs x inputs / groups x kernel x kernel, normal with variance
  // 2 / (inputs / groups * kernel^2) (He et al.: Delving deep into rectifiers, 2015), and
  // NAME.bias, initially 0. `input`: shape of whole images. Throws Error(invalid_argument) for
  // windows that do not fit.
  Convolution(ParameterTable& table, const std::string& name, const ImageShape& input,
              const ConvolutionOptions& options);

  // Returns the shape of whole images with the output channels that this rank computes.
  ImageShape output() const { return map_.whole().output(); }
  // Returns the number of elements of this rank's tile of the output.
  int64_t output_size() const { return map_.output_size(); }
  // Returns the multiply-adds of forward for one whole image and this rank's output channels.
  double multiplications() const;
  const TiledWindows& windows() const { return map_.windows(); }

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // Returns the input's gradient. The pass may defer the weights' gradients; `saved` must keep its
  // address until they are computed.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  // Runs backward without computing dLoss/dInput: for a model's first layer.
  void backward_first(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  void backward_weight(Pass& pass, const Saved& saved) const;

  TiledConvolution map_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

// Transposed convolution: the transpose of a convolution's linear map (torch.nn.ConvTranspose2d).
// With a kernel and a stride of 2 it doubles height and width.
class TransposedConvolution {
 public:
  using Saved = SavedConvolution;

  // Adds parameters NAME.weight, inputs x outputs / groups x kernel x kernel, initialized as in
  // Convolution, and NAME.bias. `output_rows`, `output_columns`: rows and columns of the output
  // beyond the smallest size that a convolution maps to the input's size (PyTorch's
  // output_padding); less than the stride.
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

  TiledConvolution map_;  // the convolution that maps the output to the input
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

}  // namespace tutti::training
