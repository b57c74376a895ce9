#include "training/models/mixed_convolution.h"

#include "training/parallel/convert_images.h"
#include "training/parallel/halo_exchange.h"

namespace tutti::training {
namespace {

ConvolutionOptions options_of(const MixedConvolutionOptions& options, const MeshPlace& place) {
  static const HaloExchange halos(Axis::tensor);
  ConvolutionOptions own{.outputs = options.outputs,
                         .kernel = options.kernel,
                         .stride = options.stride,
                         .padding = options.kernel / 2,
                         .bias = true};
  if (place.size(Axis::tensor) == 1) return own;
  if (options.split == LayerSplit::model) {
    own.placement.cuts.push_back({Axis::tensor, 0});
  } else {
    own.placement.partial = {Axis::tensor};
  }
  if (options.split == LayerSplit::domain) own.spatial = {strips_of(place), &halos};
  return own;
}

ImageShape with_channels(ImageShape shape, int64_t channels) {
  shape.channels = channels;
  return shape;
}

}  // namespace

MixedConvolution::MixedConvolution(ParameterTable& table, const std::string& name,
                                   const ImageShape& input, const MixedConvolutionOptions& options)
    : place_(table.mesh()),
      options_(options),
      input_(input),
      convolution_(table, name, input, options_of(options, place_)),
      output_(with_channels(convolution_.output(), options.outputs)) {}

Tensor MixedConvolution::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  return convolution_.forward(
      pass,
      convert_images(pass, place_, input, input_, options_.before, input_layout(options_.split)),
      saved);
}

Tensor MixedConvolution::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  if (options_.first) {
    convolution_.backward_first(pass, output_gradient, saved);
    return {};
  }
  const Tensor gradient = convolution_.backward(pass, output_gradient, saved);
  const ActivationLayout own =
      options_.split == LayerSplit::model ? kTensorPartial : input_layout(options_.split);
  return convert_images(pass, place_, gradient, input_, own, options_.before);
}

}  // namespace tutti::training
