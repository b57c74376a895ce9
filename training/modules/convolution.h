// Convolution of images (kernels/image.h: NHWC) by square windows, and its transpose. Images may be
// cut over a grid of ranks (image_grid.h): then activations are those of this rank's tile.
#pragma once

#include <string>
#include <vector>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/modules/tiled_convolution.h"

namespace tutti::training {

struct ConvolutionOptions {
  int64_t outputs = 0;  // channels
  int64_t kernel = 3;   // the window's height and width
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = false;  // a batch normalization behind it has its own
  Spatial spatial = {};
  // The placement of weight and bias. Cut along the first dimension: this rank makes the outputs
  // whose weights it has; then there is one group.
  Placement placement = {};
};

// The tensors that backward needs.
struct SavedConvolution {
  ConstTensor input;
  ConstTensor output_gradient;
  std::vector<Tensor> halo;  // of the input; of a transposed one: of the output's gradient
};

class Convolution {
 public:
  using Saved = SavedConvolution;

  // NAME.weight, outputs x inputs / groups x kernel x kernel, normal with variance
  // 2 / (inputs / groups * kernel^2) (He et al.: Delving deep into rectifiers, 2015), and
  // NAME.bias, 0. `input`: of whole images. Throws Error(invalid_argument) for windows that do not
  // fit.
  Convolution(ParameterTable& table, const std::string& name, const ImageShape& input,
              const ConvolutionOptions& options);

  // Shape for whole images, of the outputs that this rank makes.
  ImageShape output() const { return map_.whole().output(); }
  // Elements of this rank's tile of it.
  int64_t output_size() const { return map_.output_size(); }
  // Multiplications (each with an addition) for one whole image's forward, of these outputs.
  double multiplications() const;
  const TiledWindows& windows() const { return map_.windows(); }

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // The weights' gradients now or later, as the pass says. `saved` stays where it is until then.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  // Without dLoss/dInput: for a model's first layer.
  void backward_first(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  void backward_weight(Pass& pass, const Saved& saved) const;

  TiledConvolution map_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

// The transpose of the linear map that a convolution of its output to its input would be
// (torch.nn.ConvTranspose2d): with a kernel and a stride of 2 it doubles height and width.
class TransposedConvolution {
 public:
  using Saved = SavedConvolution;

  // NAME.weight, inputs x outputs / groups x kernel x kernel, normal as a convolution's, and
  // NAME.bias. `output_rows`, `output_columns`: how many more than the least that a convolution
  // would make the input's height and width of, below the stride.
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
