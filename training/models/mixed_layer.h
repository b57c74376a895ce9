// A fully connected layer that is batch- or model-parallel over the tensor-parallel ranks. It
// converts its input from the layout of the previous layer. For a micro-batch of B samples and i
// inputs:
//
//   before \ layer   batch                          model
//   batch (rows)     -                              forward: all-gather of B x i
//                                                   backward: reduce-scatter of B x i
//   model (columns)  forward: all-to-all of B x i   forward: all-gather of B x i
//                    backward: all-to-all of B x i  backward: all-reduce of B x i
//
// After a convolution (mixed_convolution.h) inputs are images, whose channels or pixels may be
// divided (parallel/convert_images.h).
//
// A batch-parallel layer's weights and bias are replicated. Their gradients are partial sums over
// the tensor-parallel ranks, which the synchronizer sums. In deterministic mode the layer sums them
// itself, for each micro-batch, in an order that does not depend on the number of ranks
// (block_linear.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "training/core/model.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/kernels/image.h"
#include "training/models/block_linear.h"
#include "training/models/mix.h"
#include "training/modules/linear.h"

namespace tutti::training {

struct MixedLayerOptions {
  LayerSplit split = LayerSplit::model;
  ActivationLayout before = {};  // layout of the inputs
  bool first = false;            // true: the inputs are the batch, whose gradient is not needed
  int64_t outputs = 0;
  double deviation = 0.02;  // standard deviation of initial weights
  int slices = 1;           // value of Pass::slices in all passes
};

class MixedLayer {
 public:
  using Saved = Linear::Saved;

  // Adds parameters NAME.weight and NAME.bias, with the shapes of the whole layer. `input`: shape
  // of a sample, which is an image of one pixel if there are no images.
  MixedLayer(ParameterTable& table, const std::string& name, const ImageShape& input,
             const MixedLayerOptions& options);

  // Returns the layout of the outputs; on one tensor-parallel rank they are replicated.
  const ActivationLayout& layout() const { return layout_; }
  int64_t outputs() const { return options_.outputs; }  // outputs of the whole layer
  OutputShape output_shape() const { return {1, outputs(), layout_}; }
  const MeshPlace& place() const { return place_; }

  // Computes this rank's part of the output from its part of the input. Collective among the tensor
  // ranks.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // Returns the input's gradient in the input's layout, or an empty tensor if the input is the
  // batch. Collective. `saved` must keep its address until the weights' gradients are computed.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  bool is_alone() const { return place_.size(Axis::tensor) == 1; }
  bool is_batch() const { return options_.split == LayerSplit::batch; }
  Tensor input_gradient(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void add_in_order(Pass& pass, const Saved& saved) const;

  MeshPlace place_;
  MixedLayerOptions options_;
  ActivationLayout layout_;
  ImageShape input_;                   // shape of the whole layer's inputs
  std::optional<Linear> linear_;       // computes the layer; not set in deterministic mode
  std::optional<BlockLinear> blocks_;  // computes the layer in deterministic mode
};

}  // namespace tutti::training
