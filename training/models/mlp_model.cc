#include "training/models/mlp_model.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/models/sizes.h"
#include "training/modules/embedding.h"
#include "training/modules/linear.h"
#include "training/modules/loss.h"
#include "training/modules/slots.h"

namespace tutti::training {
namespace {

// Gain that compensates for GELU, which more than halves the variance.
constexpr double kHiddenGain = 1.5;
// Gain for small initial logits, so that the loss starts at the logarithm of the vocabulary's size.
constexpr double kOutputGain = 0.1;

const MlpModelConfig& checked(const MlpModelConfig& config) {
  require_size("context", config.context);
  require_size("embedding width", config.embedding);
  require_size("hidden width", config.hidden);
  require_size("number of hidden layers", config.layers);
  require_size("vocabulary", config.vocabulary);
  return config;
}

double deviation(double gain, int64_t inputs) {
  return gain / std::sqrt(static_cast<double>(inputs));
}

void describe(Schema& schema, MlpModelConfig& config) {
  schema.add("context", config.context, "context length in tokens");
  schema.add("embedding", config.embedding, "embedding width");
  schema.add("hidden", config.hidden, "width of each hidden layer").flag("--ffn-hidden-size");
  schema.add("layers", config.layers, "number of hidden layers").between(0, kMostLayers);
  schema.add("vocabulary", config.vocabulary,
             "vocabulary size; training takes it from the data if it is not given");
}

const Described<MlpModelConfig> kMlp{"model", "kind", "mlp", describe};

class MlpEmbedUnit : public Unit {
 public:
  MlpEmbedUnit(ParameterTable& table, const MlpModelConfig& config)
      : config_(config), embedding_(table, "embed", config.vocabulary, config.embedding, 1) {}

  std::string name() const override { return "embed"; }
  OutputShape output_shape() const override { return {1, config_.context * config_.embedding}; }
  bool backward_needs_nothing() const override { return true; }

  Tensor forward(Pass& pass, ConstTensor) override {
    const Tensor output =
        pass.arena.take(pass.dtype, pass.batch->samples, config_.context * config_.embedding);
    embedding_.forward(pass.batch->tokens, by_token(output), saved_[pass.slot]);
    return output;
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Embedding::Saved& saved = saved_[pass.slot];
    saved.output_gradient = by_token(output_gradient);
    pass.finish([this, &pass, &saved] { embedding_.backward_weight(pass, saved); });
    return {};
  }

 private:
  // Returns a view of samples x (context * embedding) as (samples * context) x embedding.
  template <bool is_const>
  BasicTensor<is_const> by_token(BasicTensor<is_const> rows) const {
    return rows.reshaped(rows.rows * config_.context, config_.embedding);
  }

  MlpModelConfig config_;
  Embedding embedding_;
  Slots<Embedding::Saved> saved_;
};

class HiddenUnit : public Unit {
 public:
  HiddenUnit(ParameterTable& table, int64_t layer, int64_t inputs, int64_t outputs)
      : name_(cat("hidden.", layer)),
        linear_(table, name_, inputs, outputs, {.deviation = deviation(kHiddenGain, inputs)}) {}

  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return {1, linear_.outputs()}; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    saved.before = linear_.forward(pass, input, saved.linear);
    const Tensor output = pass.arena.take(input.dtype, input.rows, linear_.outputs());
    gelu(saved.before, output);
    return output;
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient =
        pass.arena.take(output_gradient.dtype, output_gradient.rows, output_gradient.cols);
    gelu_backward(saved.before, output_gradient, gradient);
    return linear_.backward(pass, gradient, saved.linear);
  }

 private:
  struct Saved {
    Linear::Saved linear;
    Tensor before;
  };

  std::string name_;
  Linear linear_;
  Slots<Saved> saved_;
};

class MlpHeadUnit : public Unit {
 public:
  MlpHeadUnit(ParameterTable& table, int64_t inputs, int64_t vocabulary)
      : output_(table, "head", inputs, vocabulary, {.deviation = deviation(kOutputGain, inputs)}) {}

  std::string name() const override { return "head"; }
  OutputShape output_shape() const override { return {1, output_.outputs()}; }
  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    return saved.loss.forward(pass, output_.forward(pass, input, saved.output));
  }
  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    return output_.backward(pass, saved.loss.backward(pass), saved.output);
  }

 private:
  struct Saved {
    Linear::Saved output;
    LossPart loss;
  };

  Linear output_;
  Slots<Saved> saved_;
};

}  // namespace

MlpModel::MlpModel(const MlpModelConfig& config, const MeshPlace& place)
    : Model(place), config_(checked(config)) {
  add_unit<MlpEmbedUnit>(config_);
  int64_t width = config_.context * config_.embedding;
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    add_unit<HiddenUnit>(layer, width, config_.hidden);
    width = config_.hidden;
  }
  add_unit<MlpHeadUnit>(width, config_.vocabulary);
}

double MlpModel::flops_per_sample() const {
  double weights = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    if (spec.shape.size() >= 2 && spec.unit != 0) weights += static_cast<double>(spec.count());
  }
  return 6 * weights;
}

Json MlpModel::configuration() const { return kMlp.write(config_); }

ModelKind mlp_kind() {
  return model_kind<MlpModelConfig>(
      "multi-layer perceptron on the last tokens",
      {.inputs = Inputs::last_tokens, .batch = 1536, .adam_rate = 6e-3, .sgd_rate = 0.3}, kMlp,
      [](const MlpModelConfig& config, const ModelContext& context) -> std::unique_ptr<Model> {
        return std::make_unique<MlpModel>(config, context.place);
      });
}

}  // namespace tutti::training
