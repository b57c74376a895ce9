#include "training/models/mixed_network.h"

#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/models/mixed_convolution.h"
#include "training/models/mixed_layer.h"
#include "training/models/registry.h"
#include "training/models/sizes.h"
#include "training/modules/features.h"
#include "training/modules/loss.h"
#include "training/modules/slots.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

using Layers = std::vector<NetworkLayer>;

void check_sizes(const ImageShape& image, const Layers& layers) {
  require_size("number of channels", image.channels);
  require_size("images' height", image.height);
  require_size("images' width", image.width);
  if (static_cast<double>(layers.size()) > kMostLayers) {
    throw Error(ErrorCode::invalid_argument, cat("the model has ", layers.size(), " layers"),
                {.where = "--widths", .remedy = cat("use at most ", kMostLayers, " layers")});
  }
  for (const NetworkLayer& layer : layers) {
    const bool is_last = &layer == &layers.back();
    require_size(layer.is_convolution() ? "number of a convolution's channels"
                 : is_last              ? "number of classes"
                                        : "width of a layer",
                 layer.outputs);
    require_size("stride of a convolution", layer.stride);
  }
}

void check_length(const Mix& mix, size_t layers) {
  if (mix.empty() || mix.size() == layers) return;
  constexpr size_t kShown = 32;
  throw Error(ErrorCode::invalid_argument,
              cat("the mix has ", mix.size(), " layers, but the model has ", layers),
              {.where = mix.size() <= kShown ? cat("--mix ", to_text(mix)) : "--mix",
               .cause = "the last layer, which computes the logits, counts as well",
               .remedy = cat("use ", layers, " letters")});
}

void check_split(const NetworkLayer& layer, size_t number, LayerSplit split, int ranks) {
  if (split == LayerSplit::domain && !layer.is_convolution()) {
    throw Error(ErrorCode::unsupported, cat("layer ", number, " cannot be domain-parallel (d)"),
                {.where = "--mix",
                 .cause = "d divides the height of images, but the layer is fully connected",
                 .remedy = "use b or m for this layer"});
  }
  if (split != LayerSplit::model || layer.outputs >= ranks) return;
  throw Error(ErrorCode::invalid_argument,
              cat("the ", layer.outputs, " outputs of layer ", number, " cannot be divided over ",
                  ranks, " ranks"),
              {.where = "--mix",
               .cause = "the layer is model-parallel (m), so some ranks would have no output",
               .remedy = cat("use ", layer.is_convolution() ? "b or d" : "b",
                             " for this layer, or fewer ranks")});
}

LayerSplit split_of(const Mix& mix, size_t layer) {
  return mix.empty() ? LayerSplit::model : mix[layer];
}

// Returns the standard deviation of initial weights. A gain of 2 preserves the variance through
// ReLU (He et al.: Delving deep into rectifiers, 2015).
double deviation_of_layer(double gain, int64_t inputs) {
  return std::sqrt(gain / static_cast<double>(inputs));
}

template <typename Options>
ConstTensor input_of(Pass& pass, const ImageShape& shape, const Options& options,
                     ConstTensor input) {
  return options.first ? ConstTensor(features_of(pass, shape.size())) : input;
}

// A unit that is a MixedConvolution or a MixedLayer, followed by a ReLU.
template <typename Layer, typename Options>
class RectifiedUnit : public Unit {
 public:
  RectifiedUnit(ParameterTable& table, std::string name, const ImageShape& input,
                const Options& options)
      : name_(std::move(name)),
        input_(input),
        options_(options),
        layer_(table, name_, input, options) {}

  const Layer& layer() const { return layer_; }
  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return layer_.output_shape(); }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    saved.output = layer_.forward(pass, input_of(pass, input_, options_, input), saved.layer);
    relu(saved.output, saved.output);
    return saved.output;
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient =
        pass.arena.take(output_gradient.dtype, output_gradient.rows, output_gradient.cols);
    relu_backward(saved.output, output_gradient, gradient);
    return layer_.backward(pass, gradient, saved.layer);
  }

 private:
  struct Saved {
    typename Layer::Saved layer;
    Tensor output;
  };

  std::string name_;
  ImageShape input_;
  Options options_;
  Layer layer_;
  Slots<Saved> saved_;
};

using RectifiedConvolution = RectifiedUnit<MixedConvolution, MixedConvolutionOptions>;
using RectifiedLayer = RectifiedUnit<MixedLayer, MixedLayerOptions>;

// The last layer. If it is model-parallel, or in deterministic mode, logits are gathered, and each
// rank computes the loss of all samples. If it is batch-parallel, each rank computes the loss of
// its samples, and the ranks sum two numbers: the loss and the count of correct targets.
class LogitsUnit : public Unit {
 public:
  LogitsUnit(ParameterTable& table, std::string name, const ImageShape& input,
             const MixedLayerOptions& options)
      : name_(std::move(name)),
        input_(input),
        options_(options),
        layer_(table, name_, input, options) {}

  std::string name() const override { return name_; }
  OutputShape output_shape() const override {
    return {1, layer_.outputs(), shares_rows() ? kTensorRows : kReplicated};
  }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    const Tensor own = layer_.forward(pass, input_of(pass, input_, options_, input), saved.layer);
    const std::span<const int32_t> targets = pass.batch->targets;
    if (!shares_rows() || targets.empty()) {
      return saved.loss.forward(
          pass, convert_layout(pass, layer_.place(), own, {pass.batch->samples, layer_.outputs()},
                               layer_.layout(), kReplicated));
    }
    const Share rows = even_share(pass.batch->samples, layer_.place().place(Axis::tensor),
                                  layer_.place().size(Axis::tensor));
    const Tensor logits = saved.loss.forward(
        pass, own,
        targets.subspan(static_cast<size_t>(rows.first), static_cast<size_t>(rows.count)));
    pass.loss = summed(pass, pass.loss.get());
    return logits;
  }

  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient = saved.loss.backward(pass);
    if (shares_rows()) return layer_.backward(pass, gradient, saved.layer);
    const Tensor own =
        convert_layout(pass, layer_.place(), gradient, {gradient.rows, layer_.outputs()},
                       kReplicated, layer_.layout());
    return layer_.backward(pass, own, saved.layer);
  }

 private:
  struct Saved {
    MixedLayer::Saved layer;
    LossPart loss;
  };

  bool shares_rows() const { return layer_.layout() == kTensorRows && options_.slices == 1; }

  Loss summed(Pass& pass, const Loss& own) const {
    const ArenaScope scope(pass.arena);
    const Tensor both = pass.arena.take(DType::f64, 1, 2);
    const std::span<double> values = both.values<double>();
    values[0] = own.sum;
    values[1] = static_cast<double>(own.correct);
    convert_layout(pass, layer_.place(), both, {1, 2}, kTensorPartial, kReplicated);
    return {values[0], static_cast<int64_t>(values[1])};
  }

  std::string name_;
  ImageShape input_;
  MixedLayerOptions options_;
  MixedLayer layer_;
  Slots<Saved> saved_;
};

}  // namespace

MixedNetwork::MixedNetwork(const ImageShape& image, Layers layers, const ComputeOptions& compute,
                           const MeshPlace& place)
    : Model(place), layers_(std::move(layers)) {
  check_sizes(image, layers_);
  check_length(compute.mix, layers_.size());
  slices_ = layers_.front().is_convolution() ? 1 : compute.slices;
  ImageShape shape = image;
  ActivationLayout before;
  for (size_t number = 0; number < layers_.size(); ++number) {
    const NetworkLayer& layer = layers_[number];
    const LayerSplit split = split_of(compute.mix, number);
    check_split(layer, number, split, place.size(Axis::tensor));
    const std::string name = cat("layer.", number);
    const bool is_first = number == 0, is_last = number + 1 == layers_.size();
    if (layer.is_convolution()) {
      add_unit<RectifiedConvolution>(name, shape,
                                     MixedConvolutionOptions{.split = split,
                                                             .before = before,
                                                             .first = is_first,
                                                             .outputs = layer.outputs,
                                                             .kernel = layer.kernel,
                                                             .stride = layer.stride});
      const MixedConvolution& made = static_cast<RectifiedConvolution&>(*units_.back()).layer();
      windows_.push_back(&made.windows());
      const ImageShape output = made.output();
      const int64_t weights = layer.kernel * layer.kernel * shape.channels;
      multiplications_ += static_cast<double>(output.size()) * static_cast<double>(weights);
      shape = output;
    } else {
      const MixedLayerOptions options{
          .split = split,
          .before = before,
          .first = is_first,
          .outputs = layer.outputs,
          .deviation = deviation_of_layer(is_last ? 1 : 2, shape.size()),
          .slices = slices_};
      is_last ? add_unit<LogitsUnit>(name, shape, options)
              : add_unit<RectifiedLayer>(name, shape, options);
      multiplications_ += static_cast<double>(shape.size()) * static_cast<double>(layer.outputs);
      shape = {1, 1, layer.outputs};
    }
    before = units_.back()->output_shape().layout;
  }
}

}  // namespace tutti::training
