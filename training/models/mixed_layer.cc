#include "training/models/mixed_layer.h"

#include "training/kernels/elementwise.h"
#include "training/parallel/convert_images.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

LinearOptions options_of(const MixedLayerOptions& options, int ranks) {
  LinearOptions linear{.deviation = options.deviation};
  if (ranks == 1) return linear;
  if (options.split == LayerSplit::model) {
    linear.cut = LinearCut::by_outputs;
  } else {
    linear.chosen = Share{0, options.outputs};
  }
  return linear;
}

BlockLinearOptions blocks_of(const MixedLayerOptions& options, const MeshPlace& place) {
  const int ranks = place.size(Axis::tensor);
  const Share all{0, options.slices};
  const Share own = even_share(options.slices, place.place(Axis::tensor), ranks);
  const bool is_model = options.split == LayerSplit::model;
  BlockLinearOptions blocks{.deviation = options.deviation,
                            .slices = options.slices,
                            .sample_slices = is_model ? all : own,
                            .output_slices = is_model ? own : all};
  if (is_model && ranks > 1) blocks.placement.cuts.push_back({Axis::tensor, 0});
  return blocks;
}

Tensor contiguous(Pass& pass, Tensor tensor) {
  if (tensor.contiguous()) return tensor;
  const Tensor copied = pass.arena.take(tensor.dtype, tensor.rows, tensor.cols);
  copy_rows(tensor, copied);
  return copied;
}

}  // namespace

MixedLayer::MixedLayer(ParameterTable& table, const std::string& name, const ImageShape& input,
                       const MixedLayerOptions& options)
    : place_(table.mesh()),
      options_(options),
      layout_(is_alone()   ? kReplicated
              : is_batch() ? kTensorRows
                           : kTensorColumns),
      input_(input) {
  if (options.slices > 1) {
    blocks_.emplace(table, name, input.size(), options.outputs, blocks_of(options, place_));
  } else {
    linear_.emplace(table, name, input.size(), options.outputs,
                    options_of(options, place_.size(Axis::tensor)));
  }
}

Tensor MixedLayer::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  const ConstTensor own =
      convert_images(pass, place_, input, input_, options_.before, input_layout(options_.split));
  return blocks_ ? blocks_->forward(pass, own, saved) : linear_->forward(pass, own, saved);
}

Tensor MixedLayer::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  Tensor gradient;
  if (!options_.first) gradient = input_gradient(pass, output_gradient, saved);
  saved.output_gradient = output_gradient;
  pass.finish([this, &pass, &saved] {
    blocks_ ? add_in_order(pass, saved) : linear_->backward_weight(pass, saved);
  });
  return gradient;
}

Tensor MixedLayer::input_gradient(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  Tensor gradient = blocks_ ? blocks_->backward_input(pass, output_gradient)
                            : linear_->backward_input(pass, output_gradient, saved);
  gradient =
      contiguous(pass, convert_images(pass, place_, gradient, input_,
                                      is_batch() ? kTensorRows : kTensorPartial, options_.before));
  if (gradient.dtype == output_gradient.dtype) return gradient;
  const Tensor rounded = pass.arena.take(output_gradient.dtype, gradient.rows, gradient.cols);
  convert(gradient, rounded);
  return rounded;
}

void MixedLayer::add_in_order(Pass& pass, const Saved& saved) const {
  const ArenaScope scope(pass.arena);
  BlockLinear::Branches sums = blocks_->weight_branches(pass, saved);
  if (is_batch() && !is_alone()) {
    for (Tensor* const sum : {&sums.weight, &sums.bias}) {
      *sum =
          convert_layout(pass, place_, *sum, {sum->rows, sum->cols}, kTensorPartial, kReplicated);
    }
  }
  blocks_->add_gradients(sums);
}

}  // namespace tutti::training
