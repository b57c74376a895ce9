#include "training/models/mixed_layer.h"

#include "training/kernels/elementwise.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

LinearOptions options_of(const MixedLayerOptions& options, int64_t outputs, int ranks) {
  LinearOptions linear{.deviation = options.deviation};
  if (ranks == 1) return linear;
  if (options.split == LayerSplit::model) {
    linear.cut = LinearCut::by_outputs;
  } else {
    linear.chosen = Share{0, outputs};
  }
  return linear;
}

Tensor contiguous(Pass& pass, Tensor tensor) {
  if (tensor.contiguous()) return tensor;
  const Tensor copied = pass.arena.take(tensor.dtype, tensor.rows, tensor.cols);
  copy_rows(tensor, copied);
  return copied;
}

}  // namespace

MixedLayer::MixedLayer(ParameterTable& table, const std::string& name, int64_t inputs,
                       int64_t outputs, const MixedLayerOptions& options)
    : place_(table.mesh()),
      options_(options),
      layout_(is_alone() ? kReplicated : layout_of(options.split)),
      inputs_(inputs),
      outputs_(outputs),
      linear_(table, name, inputs, outputs,
              options_of(options, outputs, place_.size(Axis::tensor))) {}

Tensor MixedLayer::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  const ActivationLayout wanted = options_.split == LayerSplit::batch ? kTensorRows : kReplicated;
  const ConstTensor own = is_alone()
                              ? input
                              : convert_layout(pass, place_, input, {pass.batch->samples, inputs_},
                                               options_.before, wanted);
  return linear_.forward(pass, own, saved);
}

Tensor MixedLayer::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  if (options_.first) {
    saved.output_gradient = output_gradient;
    pass.finish([this, &pass, &saved] { linear_.backward_weight(pass, saved); });
    return {};
  }
  const Tensor gradient = linear_.backward(pass, output_gradient, saved);
  if (is_alone()) return gradient;
  const ActivationLayout made = options_.split == LayerSplit::batch ? kTensorRows : kTensorPartial;
  return contiguous(pass, convert_layout(pass, place_, gradient, {pass.batch->samples, inputs_},
                                         made, options_.before));
}

}  // namespace tutti::training
