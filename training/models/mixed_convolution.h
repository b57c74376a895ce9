// A convolution that is batch-, model- or domain-parallel over the tensor-parallel ranks. It
// converts its input from the layout of the previous layer (parallel/convert_images.h). For a
// micro-batch of images:
//
//   layer    input on a rank       output on a rank    gradients of
//            (after conversion)                        weights   inputs
//   batch    some images           some images         partial   as the input
//   model    all                   some channels       its own   partial
//   domain   a strip of each, and  a strip of each     partial   as the input, edges are sent back
//            its neighbours' edges
//
// The synchronizer sums partial gradients of weights over the tensor-parallel ranks.
#pragma once

#include <cstdint>
#include <string>

#include "training/core/model.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/models/mix.h"
#include "training/modules/convolution.h"

namespace tutti::training {

struct MixedConvolutionOptions {
  LayerSplit split = LayerSplit::model;
  ActivationLayout before = {};  // layout of the inputs
  bool first = false;            // true: the inputs are the batch, whose gradient is not needed
  int64_t outputs = 0;           // number of output channels
  int64_t kernel = 3;            // height and width of the window; the padding is kernel / 2
  int64_t stride = 1;
};

class MixedConvolution {
 public:
  using Saved = Convolution::Saved;

  // Adds parameters NAME.weight and NAME.bias, with the shapes of the whole layer. `input`: shape
  // of whole images.
  MixedConvolution(ParameterTable& table, const std::string& name, const ImageShape& input,
                   const MixedConvolutionOptions& options);

  // Returns the shape of whole images, with all output channels.
  ImageShape output() const { return output_; }
  const TiledWindows& windows() const { return convolution_.windows(); }
  // Returns the shape that this rank passes to the next unit.
  OutputShape output_shape() const {
    return {1, convolution_.output_size(),
            is_alone() ? kReplicated : output_layout(options_.split)};
  }

  // Computes this rank's part of the output from its part of the input. Collective among the tensor
  // ranks.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // Returns the input's gradient in the input's layout, or an empty tensor if the input is the
  // batch. Collective. `saved` must keep its address until the weights' gradients are computed.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  bool is_alone() const { return place_.size(Axis::tensor) == 1; }

  MeshPlace place_;
  MixedConvolutionOptions options_;
  ImageShape input_;
  Convolution convolution_;
  ImageShape output_;
};

}  // namespace tutti::training
