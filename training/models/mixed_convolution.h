// A convolution that is batch-, model- or domain-parallel over the tensor ranks, and the
// conversions from the layout of the layer before (parallel/convert_images.h). Of a micro-batch of
// images:
//
//   layer    has of its input      and of its output   gradients of
//            (what is converted)                       weights   inputs
//   batch    some images           some images         partial   as the input
//   model    all                   some channels       its own   partial
//   domain   a strip of each, and  a strip of each     partial   as the input, edges travel back
//            its neighbours' edges
//
// Partial gradients of weights are added up by whoever sums gradients over ranks.
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
  ActivationLayout before = {};  // of the inputs
  bool first = false;            // the inputs are the batch, whose gradient nobody needs
  int64_t outputs = 0;           // channels
  int64_t kernel = 3;            // with a padding of kernel / 2
  int64_t stride = 1;
};

class MixedConvolution {
 public:
  using Saved = Convolution::Saved;

  // Parameters NAME.weight and NAME.bias, of the whole layer. `input`: of whole images.
  MixedConvolution(ParameterTable& table, const std::string& name, const ImageShape& input,
                   const MixedConvolutionOptions& options);

  ImageShape output() const { return output_; }  // of whole images, with all channels
  const TiledWindows& windows() const { return convolution_.windows(); }
  // Between units, as this rank has it.
  OutputShape output_shape() const {
    return {1, convolution_.output_size(),
            is_alone() ? kReplicated : output_layout(options_.split)};
  }

  // Input and output as this rank has them. Collective among the tensor ranks.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // Returns the input's gradient in the input's layout; where the input is the batch, an empty
  // tensor. Collective. `saved` stays until the weights' work is done.
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
