#include "training/models/perceptron.h"

#include <cmath>
#include <span>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/models/mixed_layer.h"
#include "training/models/sizes.h"
#include "training/modules/features.h"
#include "training/modules/loss.h"
#include "training/modules/slots.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

void check_sizes(const PerceptronConfig& config) {
  require_images(config);
  for (const int64_t width : config.widths) require_size("width of a layer", width);
  if (static_cast<double>(config.layers()) > kMostLayers) {
    throw Error(ErrorCode::invalid_argument, cat("the model has ", config.layers(), " layers"),
                {.where = "--widths", .remedy = cat("give at most ", kMostLayers, " layers")});
  }
}

int64_t outputs_of(const PerceptronConfig& config, int64_t layer) {
  return layer + 1 == config.layers() ? config.classes : config.widths[static_cast<size_t>(layer)];
}

void check_mix(const PerceptronConfig& config, const MeshPlace& place) {
  const Mix& mix = config.compute.mix;
  if (!mix.empty() && std::ssize(mix) != config.layers()) {
    constexpr size_t kShown = 32;
    throw Error(ErrorCode::invalid_argument,
                cat("the mix has ", mix.size(), " layers, and the model ", config.layers()),
                {.where = mix.size() <= kShown ? cat("--mix ", to_text(mix)) : "--mix",
                 .cause = "the last layer, which makes the classes' logits, counts too",
                 .remedy = cat("give ", config.layers(), " letters")});
  }
  const int ranks = place.size(Axis::tensor);
  for (int64_t layer = 0; layer < config.layers(); ++layer) {
    const bool is_batch = !mix.empty() && mix[static_cast<size_t>(layer)] == LayerSplit::batch;
    if (is_batch || outputs_of(config, layer) >= ranks) continue;
    throw Error(ErrorCode::invalid_argument,
                cat("the ", outputs_of(config, layer), " outputs of layer ", layer,
                    " cannot be divided over ", ranks, " ranks"),
                {.where = "--mix",
                 .cause = "the layer is model-parallel (m), and some ranks would have no output",
                 .remedy = "give b for this layer, or fewer ranks"});
  }
}

const PerceptronConfig& checked(const PerceptronConfig& config, const MeshPlace& place) {
  check_sizes(config);
  check_mix(config, place);
  return config;
}

void describe(Schema& schema, PerceptronConfig& config) {
  schema.add("widths", config.widths, "width of each hidden layer");
  describe_images(schema, config, "kinds of images");
}

const Described<PerceptronConfig> kPerceptron{"model", "kind", "perceptron", describe};

// One layer's place in the model.
struct LayerOptions {
  int64_t number = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  MixedLayerOptions mixed = {};

  std::string name() const { return cat("layer.", number); }
};

// ReLU keeps the variance with this gain (He et al.: Delving deep into rectifiers, 2015).
double deviation_of_layer(double gain, int64_t inputs) {
  return std::sqrt(gain / static_cast<double>(inputs));
}

ConstTensor input_of(Pass& pass, const LayerOptions& options, ConstTensor input) {
  return options.mixed.first ? ConstTensor(features_of(pass, options.inputs)) : input;
}

class RectifiedUnit : public Unit {
 public:
  RectifiedUnit(ParameterTable& table, const LayerOptions& options)
      : options_(options),
        layer_(table, options.name(), options.inputs, options.outputs, options.mixed) {}

  std::string name() const override { return options_.name(); }
  OutputShape output_shape() const override { return {1, layer_.outputs(), layer_.layout()}; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    saved.output = layer_.forward(pass, input_of(pass, options_, input), saved.layer);
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
    MixedLayer::Saved layer;
    Tensor output;
  };

  LayerOptions options_;
  MixedLayer layer_;
  Slots<Saved> saved_;
};

// The last layer. Model-parallel, or in deterministic mode: logits are gathered, and each rank has
// the loss of all samples. Batch-parallel: each rank has the loss of its samples, and the ranks add
// up two numbers.
class LogitsUnit : public Unit {
 public:
  LogitsUnit(ParameterTable& table, const LayerOptions& options)
      : options_(options),
        layer_(table, options.name(), options.inputs, options.outputs, options.mixed) {}

  std::string name() const override { return options_.name(); }
  OutputShape output_shape() const override {
    return {1, layer_.outputs(), shares_rows() ? kTensorRows : kReplicated};
  }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    const Tensor own = layer_.forward(pass, input_of(pass, options_, input), saved.layer);
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

  bool shares_rows() const { return layer_.layout() == kTensorRows && options_.mixed.slices == 1; }

  Loss summed(Pass& pass, const Loss& own) const {
    const ArenaScope scope(pass.arena);
    const Tensor both = pass.arena.take(DType::f64, 1, 2);
    const std::span<double> values = both.values<double>();
    values[0] = own.sum;
    values[1] = static_cast<double>(own.correct);
    convert_layout(pass, layer_.place(), both, {1, 2}, kTensorPartial, kReplicated);
    return {values[0], static_cast<int64_t>(values[1])};
  }

  LayerOptions options_;
  MixedLayer layer_;
  Slots<Saved> saved_;
};

}  // namespace

Perceptron::Perceptron(const PerceptronConfig& config, const MeshPlace& place)
    : Model(place), config_(checked(config, place)) {
  const Mix& mix = config_.compute.mix;
  ActivationLayout before;
  int64_t inputs = config_.inputs();
  for (int64_t layer = 0; layer < config_.layers(); ++layer) {
    const auto at = static_cast<size_t>(layer);
    const bool is_last = layer + 1 == config_.layers();
    const LayerSplit split = mix.empty() ? LayerSplit::model : mix[at];
    const LayerOptions options{.number = layer,
                               .inputs = inputs,
                               .outputs = outputs_of(config_, layer),
                               .mixed = {.split = split,
                                         .before = before,
                                         .first = layer == 0,
                                         .deviation = deviation_of_layer(is_last ? 1 : 2, inputs),
                                         .slices = config_.compute.slices}};
    if (is_last) {
      add_unit<LogitsUnit>(options);
    } else {
      add_unit<RectifiedUnit>(options);
    }
    before = units_.back()->output_shape().layout;
    inputs = options.outputs;
  }
}

Json Perceptron::configuration() const { return kPerceptron.write(config_); }

ModelKind perceptron_kind() {
  return model_kind<PerceptronConfig>(
      "of images, fully connected",
      {.inputs = Inputs::images, .batch = 128, .micro_batch = 64, .adam_rate = 1e-3}, kPerceptron,
      [](const PerceptronConfig& config, const ModelContext& context) -> std::unique_ptr<Model> {
        PerceptronConfig own = config;
        own.compute = context.compute;
        return std::make_unique<Perceptron>(own, context.place);
      });
}

}  // namespace tutti::training
