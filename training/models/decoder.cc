#include "training/models/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/modules/dropout.h"
#include "training/modules/embedding.h"
#include "training/modules/loss.h"
#include "training/modules/slots.h"
#include "training/parallel/sum_along.h"

namespace tutti::training {
namespace {

constexpr double kDeviation = 0.02;  // of weights at the start, as in GPT-2

// Each rank along the tensor axis has whole heads, of queries and of keys, and as many hidden
// values as the others.
void require_even_cuts(const DecoderOptions& options, int64_t ranks) {
  const int64_t key_heads = std::max(options.attention.key_heads, int64_t{0});
  const std::array<std::pair<int64_t, const char*>, 3> all = {
      {{options.attention.heads, "heads"},
       {key_heads, "heads of keys"},
       {options.mlp.hidden, "hidden values"}}};
  int64_t common = 0;
  for (const auto& [count, what] : all) common = std::gcd(common, count);
  int64_t nearest = 1;
  for (int64_t number = 2; number <= std::min(common, 2 * ranks); ++number) {
    if (common % number == 0 && std::abs(number - ranks) < std::abs(nearest - ranks)) {
      nearest = number;
    }
  }
  for (const auto& [count, what] : all) {
    if (count % ranks == 0) continue;
    throw Error(ErrorCode::invalid_argument,
                cat(count, ' ', what, " cannot be cut over ", ranks, " ranks"),
                {.where = "--tp", .remedy = cat("the nearest number of ranks is ", nearest)});
  }
}

DecoderOptions checked(DecoderOptions options, int tensor_ranks) {
  const auto require = [](std::string_view what, int64_t value) {
    if (value >= 1) return;
    throw Error(ErrorCode::invalid_argument, cat("the model's ", what, " cannot be ", value),
                {.remedy = "give at least 1"});
  };
  require("number of layers", options.layers);
  require("number of heads", options.attention.heads);
  require("width", options.width);
  require("context", options.context);
  require("vocabulary", options.vocabulary);
  require("hidden width", options.mlp.hidden);
  require_even_cuts(options, tensor_ranks);
  if (!(options.dropout >= 0 && options.dropout < 1)) {  // nor NaN
    throw Error(ErrorCode::invalid_argument, cat("the dropout cannot be ", options.dropout),
                {.remedy = "give a share of at least 0 and below 1"});
  }
  if (!(options.norm_epsilon >= 0 && std::isfinite(options.norm_epsilon))) {
    throw Error(ErrorCode::invalid_argument,
                cat("the normalizations' epsilon cannot be ", options.norm_epsilon),
                {.remedy = "give a small number, such as 1e-5"});
  }
  if (options.context > options.max_context) {
    throw Error(ErrorCode::invalid_argument,
                cat("a model for ", options.max_context, " tokens cannot see ", options.context),
                {.where = "--context", .remedy = cat("give at most ", options.max_context)});
  }
  options.attention.width = options.mlp.width = options.width;
  if (options.attention.head_size == 0 && options.width % options.attention.heads == 0) {
    options.attention.head_size = options.width / options.attention.heads;
  }
  if (options.rope && options.attention.head_size > 0) {
    options.attention.rope =
        std::make_shared<Rope>(options.context, options.attention.head_size, *options.rope);
  }
  // Each residual connection adds variance: GPT-2 starts its last layers smaller.
  options.attention.output_deviation = options.mlp.output_deviation =
      kDeviation / std::sqrt(2 * static_cast<double>(options.layers));
  return options;
}

class EmbedUnit : public Unit {
 public:
  EmbedUnit(ParameterTable& table, const DecoderOptions& options)
      : options_(options),
        tokens_(table, options.names.embedding, options.vocabulary, options.width, kDeviation),
        dropout_(options.dropout, 0) {
    if (options.learned_positions) {
      positions_.emplace(table, options.names.positions, options.max_context, options.width,
                         kDeviation);
    }
  }

  const Parameter* token_weight() const { return tokens_.weight(); }
  std::string name() const override { return "embed"; }
  OutputShape output_shape() const override { return {options_.context, options_.width}; }
  bool backward_needs_nothing() const override { return true; }

  Tensor forward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    const std::span<const int32_t> tokens = pass.batch->tokens;
    const int64_t rows = std::ssize(tokens);
    const Tensor output = pass.arena.take(pass.dtype, rows, options_.width);
    tokens_.forward(tokens, output, saved.tokens);
    if (positions_) {
      const ArenaScope scope(pass.arena);
      const Tensor places = pass.arena.take(pass.dtype, rows, options_.width);
      const int64_t context = rows / pass.batch->samples;
      saved.places.resize(static_cast<size_t>(rows));
      for (int64_t row = 0; row < rows; ++row) {
        saved.places[static_cast<size_t>(row)] =
            static_cast<int32_t>(pass.batch->first_position + row % context);
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

  DecoderOptions options_;
  Embedding tokens_;
  std::optional<Embedding> positions_;
  Dropout dropout_;
  Slots<Saved> saved_;
};

class BlockUnit : public Unit {
 public:
  BlockUnit(ParameterTable& table, const DecoderOptions& options, int64_t layer)
      : name_(cat(options.names.block, layer)),
        shape_{options.context, options.width},
        selective_(options.selective_recomputation),
        is_cut_(table.mesh().size(Axis::tensor) > 1),
        norm_1_(table, cat(name_, '.', options.names.attention_norm), options.width, options.norm,
                options.norm_epsilon),
        attention_(table, cat(name_, '.', options.names.attention), options.attention),
        norm_2_(table, cat(name_, '.', options.names.mlp_norm), options.width, options.norm,
                options.norm_epsilon),
        mlp_(table, cat(name_, '.', options.names.mlp), options.mlp),
        dropout_{Dropout(options.dropout, static_cast<uint64_t>(2 * layer + 1)),
                 Dropout(options.dropout, static_cast<uint64_t>(2 * layer + 2))} {}

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
    add_up(pass, middle);
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
    add_up(pass, output);
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
    Tensor branch = mlp_.backward(pass, dropped(pass, output_gradient, dropout_[1]), saved.mlp);
    add_up(pass, branch);
    const Tensor middle_gradient = norm_2_.backward(pass, branch, saved.norm_2);
    add(output_gradient, middle_gradient, middle_gradient);

    if (selective_) {
      attention_.set_input(saved.attention, norm_1_.forward(pass, saved.input, saved.norm_1));
    }
    branch =
        attention_.backward(pass, dropped(pass, middle_gradient, dropout_[0]), saved.attention);
    add_up(pass, branch);
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

  template <typename Body>
  void recomputable(Arena& arena, Body&& body) const {
    const size_t mark = arena.mark();
    body();
    if (selective_) arena.release(mark);
  }

  // The tensor ranks' parts. A model that is whole on each of them has no parts.
  void add_up(const Pass& pass, Tensor tensor) const {
    if (is_cut_) sum_along(pass, Axis::tensor, tensor);
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
  bool is_cut_;
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
  HeadUnit(ParameterTable& table, const DecoderOptions& options, const Parameter* tied)
      : shape_{options.context, options.vocabulary},
        norm_(table, options.names.last_norm, options.width, options.norm, options.norm_epsilon),
        output_(tied != nullptr ? Linear(table.share(tied), options.width, options.vocabulary)
                                : Linear(table, options.names.output, options.width,
                                         options.vocabulary, {.bias = false})) {}

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

Decoder::Decoder(DecoderOptions options, const MeshPlace& place)
    : Model(place), options_(checked(std::move(options), place.size(Axis::tensor))) {
  add_unit<EmbedUnit>(options_);
  const Parameter* tied =
      options_.tied ? static_cast<const EmbedUnit&>(*units_.front()).token_weight() : nullptr;
  for (int64_t layer = 0; layer < options_.layers; ++layer) add_unit<BlockUnit>(options_, layer);
  add_unit<HeadUnit>(options_, tied);
}

// Chowdhery et al.: PaLM, 2022, appendix B: 6 a parameter and token, and the attention's products.
double Decoder::flops_per_sample() const {
  double weights = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    const bool looked_up = spec.name == options_.names.positions + ".weight" ||
                           (spec.name == options_.names.embedding + ".weight" && !options_.tied);
    if (spec.shape.size() >= 2 && !looked_up) weights += static_cast<double>(spec.count());
  }
  const auto context = static_cast<double>(options_.context);
  const double attention = 12 *
                           static_cast<double>(options_.layers * options_.attention.heads *
                                               options_.attention.head_size) *
                           context;
  return context * (6 * weights + attention);
}

}  // namespace tutti::training
