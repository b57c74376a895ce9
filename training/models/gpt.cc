#include "training/models/gpt.h"

#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/modules/dropout.h"
#include "training/modules/embedding.h"
#include "training/modules/loss.h"
#include "training/modules/self_attention.h"
#include "training/modules/slots.h"

namespace tutti::training {
namespace {

constexpr double kDeviation = 0.02;  // of weights at the start, as in GPT-2

GptConfig checked(GptConfig config) {
  const auto require = [](std::string_view what, int64_t value) {
    if (value >= 1) return;
    throw Error(ErrorCode::invalid_argument, cat("the model's ", what, " cannot be ", value),
                {.remedy = "give at least 1"});
  };
  require("number of layers", config.layers);
  require("number of heads", config.heads);
  require("width", config.width);
  require("context", config.context);
  require("vocabulary", config.vocabulary);
  if (!(config.dropout >= 0 && config.dropout < 1)) {  // nor NaN
    throw Error(ErrorCode::invalid_argument, cat("the dropout cannot be ", config.dropout),
                {.remedy = "give a share of at least 0 and below 1"});
  }
  if (config.hidden == 0) {
    config.hidden =
        config.mlp == MlpKind::gelu ? 4 * config.width : (8 * config.width / 3 + 31) / 32 * 32;
  }
  require("hidden width", config.hidden);
  return config;
}

void describe(Schema& schema, GptConfig& config) {
  schema.add("layers", config.layers, "blocks");
  schema.add("heads", config.heads, "of the attention");
  schema.add("width", config.width, "values per position");
  schema.add("context", config.context, "tokens that the model sees");
  schema.add("vocabulary", config.vocabulary, "kinds of tokens; as the data has");
  schema.add("hidden", config.hidden, "of the feed-forward part; 0: 4 x width");
  schema.add("norm", config.norm, {{"layer", NormKind::layer}, {"rms", NormKind::rms}},
             "layer or rms");
  schema.add("mlp", config.mlp, {{"gelu", MlpKind::gelu}, {"swiglu", MlpKind::swiglu}},
             "gelu or swiglu");
  schema.add("positions", config.positions,
             {{"learned", Positions::learned}, {"rope", Positions::rope}}, "learned or rope");
  schema.add("tied", config.tied, "an output layer apart from the embedding")
      .flag("--untied", false);
  schema.add("bias", config.bias, "linear layers without").flag("--no-bias", false);
  schema.add("dropout", config.dropout, "share of values").role(kTrainingOnly);
}

const Described<GptConfig> kGpt2{"model", "kind", "gpt2", describe};

class EmbedUnit : public Unit {
 public:
  EmbedUnit(ParameterTable& table, const GptConfig& config)
      : config_(config),
        tokens_(table, "wte", config.vocabulary, config.width, kDeviation),
        dropout_(config.dropout, 0) {
    if (config.positions == Positions::learned) {
      positions_.emplace(table, "wpe", config.context, config.width, kDeviation);
    }
  }

  const Parameter* token_weight() const { return tokens_.weight(); }
  std::string name() const override { return "embed"; }
  OutputShape output_shape() const override { return {config_.context, config_.width}; }
  bool backward_needs_nothing() const override { return true; }

  Tensor forward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    const std::span<const int32_t> tokens = pass.batch->tokens;
    const int64_t rows = std::ssize(tokens);
    const Tensor output = pass.arena.take(pass.dtype, rows, config_.width);
    tokens_.forward(tokens, output, saved.tokens);
    if (positions_) {
      const ArenaScope scope(pass.arena);
      const Tensor places = pass.arena.take(pass.dtype, rows, config_.width);
      saved.places.resize(static_cast<size_t>(rows));
      for (size_t row = 0; row < saved.places.size(); ++row) {
        saved.places[row] = static_cast<int32_t>(row % static_cast<size_t>(config_.context));
      }
      positions_->forward(saved.places, places, saved.positions);
      add(output, places, output);
    }
    dropout_.forward(pass, output);
    return output;
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    ConstTensor gradient = output_gradient;
    if (dropout_.active(pass)) {
      const Tensor copy = pass.arena.take(gradient.dtype, gradient.rows, gradient.cols);
      convert(gradient, copy);
      dropout_.backward(pass, copy);
      gradient = copy;
    }
    saved.tokens.output_gradient = gradient;
    saved.positions.output_gradient = gradient;
    pass.finish([this, &pass, &saved] {
      tokens_.backward_weight(pass, saved.tokens);
      if (positions_) positions_->backward_weight(pass, saved.positions);
    });
    return {};
  }

 private:
  struct Saved {
    Embedding::Saved tokens;
    Embedding::Saved positions;
    std::vector<int32_t> places;
  };

  GptConfig config_;
  Embedding tokens_;
  std::optional<Embedding> positions_;
  Dropout dropout_;
  Slots<Saved> saved_;
};

class BlockUnit : public Unit {
 public:
  BlockUnit(ParameterTable& table, const GptConfig& config, int64_t layer,
            std::shared_ptr<const Rope> rope)
      : name_(cat("h.", layer)),
        shape_{config.context, config.width},
        selective_(config.selective_recomputation),
        norm_1_(table, name_ + ".ln_1", config.width, config.norm),
        attention_(table, name_ + ".attn",
                   {.width = config.width,
                    .heads = config.heads,
                    .bias = config.bias,
                    .rope = std::move(rope),
                    .output_deviation = residual_deviation(config)}),
        norm_2_(table, name_ + ".ln_2", config.width, config.norm),
        mlp_(table, name_ + ".mlp",
             {.width = config.width,
              .hidden = config.hidden,
              .kind = config.mlp,
              .bias = config.bias,
              .output_deviation = residual_deviation(config)}),
        dropout_{Dropout(config.dropout, static_cast<uint64_t>(2 * layer + 1)),
                 Dropout(config.dropout, static_cast<uint64_t>(2 * layer + 2))} {}

  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return shape_; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    Arena& arena = pass.arena;
    const auto take = [&](int64_t cols) { return arena.take(input.dtype, input.rows, cols); };
    // Where recomputation is selective, what a scope takes is given back at its end.
    const Tensor qkv = take(attention_.projected_width());
    recomputable(arena, [&] {
      attention_.project(pass, norm_1_.forward(pass, input, saved.norm_1), saved.attention, qkv);
    });
    const Tensor middle = attention_.attend(pass, saved.attention);
    dropout_[0].forward(pass, middle);
    add(input, middle, middle);
    saved.input = input;
    saved.middle = middle;

    const Tensor before = take(mlp_.before_width());
    recomputable(arena, [&] {
      mlp_.project(pass, norm_2_.forward(pass, middle, saved.norm_2), saved.mlp, before);
    });
    const Tensor output = take(input.cols);
    recomputable(arena, [&] { mlp_.activate(pass, saved.mlp, output); });
    dropout_[1].forward(pass, output);
    add(middle, output, output);
    return output;
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    if (selective_) {
      mlp_.recompute(pass, saved.mlp);
      saved.mlp.in.input = norm_2_.forward(pass, saved.middle, saved.norm_2);
      saved.mlp.up.input = saved.mlp.in.input;
    }
    ConstTensor branch = dropped(pass, output_gradient, dropout_[1]);
    branch = mlp_.backward(pass, branch, saved.mlp);
    const Tensor middle_gradient = norm_2_.backward(pass, branch, saved.norm_2);
    add(output_gradient, middle_gradient, middle_gradient);

    if (selective_) {
      attention_.set_input(saved.attention, norm_1_.forward(pass, saved.input, saved.norm_1));
    }
    branch = dropped(pass, middle_gradient, dropout_[0]);
    branch = attention_.backward(pass, branch, saved.attention);
    const Tensor input_gradient = norm_1_.backward(pass, branch, saved.norm_1);
    add(middle_gradient, input_gradient, input_gradient);
    return input_gradient;
  }

 private:
  struct Saved {
    ConstTensor input;
    Tensor middle;  // after the attention's residual connection
    Norm::Saved norm_1;
    SelfAttention::Saved attention;
    Norm::Saved norm_2;
    Mlp::Saved mlp;
  };

  // Each residual connection adds variance: GPT-2 starts its last layers smaller.
  static double residual_deviation(const GptConfig& config) {
    return kDeviation / std::sqrt(2 * static_cast<double>(config.layers));
  }

  template <typename Body>
  void recomputable(Arena& arena, Body&& body) const {
    const size_t mark = arena.mark();
    body();
    if (selective_) arena.release(mark);
  }

  static ConstTensor dropped(Pass& pass, ConstTensor gradient, const Dropout& dropout) {
    if (!dropout.active(pass)) return gradient;
    const Tensor copy = pass.arena.take(gradient.dtype, gradient.rows, gradient.cols);
    convert(gradient, copy);
    dropout.backward(pass, copy);
    return copy;
  }

  std::string name_;
  OutputShape shape_;
  bool selective_;
  Norm norm_1_;
  SelfAttention attention_;
  Norm norm_2_;
  Mlp mlp_;
  std::array<Dropout, 2> dropout_;
  Slots<Saved> saved_;
};

// The last normalization, the output layer and the loss.
class HeadUnit : public Unit {
 public:
  HeadUnit(ParameterTable& table, const GptConfig& config, const Parameter* tied)
      : shape_{config.context, config.vocabulary},
        norm_(table, "ln_f", config.width, config.norm),
        output_(tied != nullptr
                    ? Linear(table.share(tied), config.width, config.vocabulary)
                    : Linear(table, "lm_head", config.width, config.vocabulary, {.bias = false})) {}

  std::string name() const override { return "head"; }
  OutputShape output_shape() const override { return shape_; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    const Tensor normal = norm_.forward(pass, input, saved.norm);
    return saved.loss.forward(pass, output_.forward(pass, normal, saved.output));
  }

  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient = output_.backward(pass, saved.loss.backward(pass), saved.output);
    return norm_.backward(pass, gradient, saved.norm);
  }

 private:
  struct Saved {
    Norm::Saved norm;
    Linear::Saved output;
    LossPart loss;
  };

  OutputShape shape_;
  Norm norm_;
  Linear output_;
  Slots<Saved> saved_;
};

}  // namespace

Gpt::Gpt(const GptConfig& config) : config_(checked(config)) {
  add_unit<EmbedUnit>(config_);
  const Parameter* tied =
      config_.tied ? static_cast<const EmbedUnit&>(*units_.front()).token_weight() : nullptr;
  std::shared_ptr<const Rope> rope;
  if (config_.positions == Positions::rope && config_.width % config_.heads == 0) {
    rope = std::make_shared<Rope>(config_.context, config_.width / config_.heads);
  }
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    add_unit<BlockUnit>(config_, layer, rope);
  }
  add_unit<HeadUnit>(config_, tied);
}

// Chowdhery et al.: PaLM, 2022, appendix B: 6 a parameter and token, and the attention's products.
double Gpt::flops_per_sample() const {
  double weights = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    const bool looked_up =
        spec.name == "wpe.weight" || (spec.name == "wte.weight" && !config_.tied);
    if (spec.shape.size() >= 2 && !looked_up) weights += static_cast<double>(spec.count());
  }
  const auto context = static_cast<double>(config_.context);
  const double attention = 12 * static_cast<double>(config_.layers * config_.width) * context;
  return context * (6 * weights + attention);
}

Json Gpt::configuration() const { return kGpt2.write(config_); }

ModelKind gpt2_kind() {
  return model_kind<GptConfig>(
      "GPT-2 and its successors",
      {.inputs = Inputs::windows, .batch = 32, .micro_batch = 8, .weight_decay = 0.1, .clip = 1},
      kGpt2, [](const GptConfig& config, const ModelContext& context) -> std::unique_ptr<Model> {
        GptConfig complete = config;
        complete.selective_recomputation = context.selective_recomputation;
        return std::make_unique<Gpt>(complete);
      });
}

}  // namespace tutti::training
