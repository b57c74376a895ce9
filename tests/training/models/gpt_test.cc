#include "training/models/gpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/training/support/gradient_check.h"
#include "tests/training/support/model_pass.h"

namespace tutti::training::testing {
namespace {

constexpr GptConfig kTiny{
    .layers = 2, .heads = 2, .width = 4, .context = 5, .vocabulary = 7, .hidden = 6};

std::vector<std::string> names(const ParameterTable& table) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : table.specs()) names.push_back(spec.name);
  return names;
}

const ParameterSpec& spec_of(Model& model, const std::string& name) {
  const std::vector<ParameterSpec>& specs = model.parameters().specs();
  return *std::find_if(specs.begin(), specs.end(),
                       [&](const ParameterSpec& spec) { return spec.name == name; });
}

TEST(GptTest, ParametersOfGpt2) {
  Gpt model({.layers = 1, .heads = 2, .width = 6, .context = 5, .vocabulary = 7});
  EXPECT_EQ(
      names(model.parameters()),
      (std::vector<std::string>{
          "wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.attn.c_attn.weight",
          "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight", "h.0.attn.c_proj.bias",
          "h.0.ln_2.weight", "h.0.ln_2.bias", "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias",
          "h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"}));
  EXPECT_EQ(spec_of(model, "wte.weight").shape, (std::vector<int64_t>{7, 6}));
  EXPECT_EQ(spec_of(model, "wpe.weight").shape, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(spec_of(model, "h.0.attn.c_attn.weight").shape, (std::vector<int64_t>{18, 6}));
  EXPECT_EQ(spec_of(model, "h.0.mlp.c_fc.weight").shape, (std::vector<int64_t>{24, 6}));
  EXPECT_EQ(spec_of(model, "h.0.mlp.c_proj.weight").shape, (std::vector<int64_t>{6, 24}));
  EXPECT_EQ(model.parameters().used_by(2), (std::vector<int>{14, 15, 0}));  // tied
  EXPECT_EQ(model.units().size(), 3u);
  EXPECT_EQ(model.units()[1]->name(), "h.0");
  EXPECT_EQ(model.targets_per_sample(), 5);
}

TEST(GptTest, ParametersOfALlama) {
  Gpt model({.layers = 1,
             .heads = 2,
             .width = 36,
             .context = 5,
             .vocabulary = 7,
             .norm = NormKind::rms,
             .mlp = MlpKind::swiglu,
             .positions = Positions::rope,
             .tied = false,
             .bias = false});
  EXPECT_EQ(names(model.parameters()),
            (std::vector<std::string>{"wte.weight", "h.0.ln_1.weight", "h.0.attn.c_attn.weight",
                                      "h.0.attn.c_proj.weight", "h.0.ln_2.weight",
                                      "h.0.mlp.w_gate.weight", "h.0.mlp.w_up.weight",
                                      "h.0.mlp.w_down.weight", "ln_f.weight", "lm_head.weight"}));
  EXPECT_EQ(spec_of(model, "h.0.mlp.w_down.weight").shape, (std::vector<int64_t>{36, 96}));
}

// The deviations of Radford et al. 2019, section 2.3.
TEST(GptTest, InitialDeviations) {
  Gpt model({.layers = 8, .heads = 2, .width = 6, .context = 5, .vocabulary = 7});
  EXPECT_EQ(spec_of(model, "h.3.mlp.c_fc.weight").initial.scale, 0.02);
  EXPECT_EQ(spec_of(model, "h.3.mlp.c_proj.weight").initial.scale, 0.02 / 4);
  EXPECT_EQ(spec_of(model, "h.3.attn.c_proj.weight").initial.scale, 0.02 / 4);
  EXPECT_EQ(spec_of(model, "h.3.ln_1.weight").initial.scale, 1);
  EXPECT_EQ(spec_of(model, "h.3.ln_1.bias").initial.scale, 0);
}

TEST(GptTest, FlopsPerSample) {
  // Per token: 6 x 12 width^2 per layer, 6 x vocabulary x width, and 12 x width x context per
  // layer.
  GptConfig config{.layers = 3, .heads = 2, .width = 8, .context = 16, .vocabulary = 32};
  const double expected = 16.0 * (6 * (3 * 12 * 64 + 32 * 8) + 12 * 3 * 8 * 16);
  EXPECT_EQ(Gpt(config).flops_per_sample(), expected);
  config.tied = false;
  config.positions = Positions::rope;
  EXPECT_EQ(Gpt(config).flops_per_sample(), expected);
}

// If all parameters are 0, all logits are 0, and every token is equally likely.
TEST(GptTest, ZeroParametersGiveEqualLogits) {
  Gpt model(kTiny);
  const BoundParameters parameters(model.parameters(), DType::f64);
  for (int i = 0; i < parameters.size(); ++i) {
    assign(parameters.value(i),
           std::vector<double>(static_cast<size_t>(parameters.value(i).size())));
  }
  TestPass test;
  const TokenBatch batch(3, 5, 7);
  test.batch = batch.micro_batch;
  forward(model, test.pass);
  EXPECT_NEAR(test.pass.loss.get().sum, 15 * std::log(7), 1e-13);
  // All 15 targets count as correct, because no logit is larger than theirs.
  EXPECT_EQ(test.pass.loss.get().correct, 15);
}

TEST(GptTest, NoTokenSeesLaterOnes) {
  for (const Positions positions : {Positions::learned, Positions::rope}) {
    GptConfig config = kTiny;
    config.positions = positions;
    Gpt model(config);
    const BoundParameters parameters(model.parameters(), DType::f32);
    TestPass test(DType::f32);
    TokenBatch batch(2, 5, 7);
    test.batch = batch.micro_batch;
    test.batch.targets = {};  // without targets, the result is the logits
    const HostTensor before = rounded_to(DType::f32, forward(model, test.pass));
    batch.tokens[3] = (batch.tokens[3] + 1) % 7;  // changes a token of the first sample
    const Tensor after = forward(model, test.pass);
    for (int64_t row = 0; row < 10; ++row) {
      EXPECT_EQ(same_bits(before.view().row_range(row, 1), after.row_range(row, 1)),
                row < 3 || row >= 5);
    }
  }
}

void check_gradients(const GptConfig& config) {
  SCOPED_TRACE(in_words(Gpt(config).configuration()));
  Gpt model(config);
  const BoundParameters parameters(model.parameters(), DType::f64, 0.4);
  const TokenBatch batch(2, config.context, config.vocabulary, 5);
  TestPass test;
  test.batch = batch.micro_batch;
  test.pass.loss_scale = 0.5;
  const auto loss = [&] {
    const ArenaScope scope(test.arena);
    forward(model, test.pass);
    return 0.5 * test.pass.loss.get().sum;
  };
  forward(model, test.pass);
  backward(model, test.pass);
  for (int i = 0; i < parameters.size(); ++i) {
    expect_gradient(model.parameters().specs()[static_cast<size_t>(i)].name, parameters.value(i),
                    rounded_to(DType::f64, parameters.gradient(i)), loss);
  }
}

TEST(GptTest, GradientsOfEveryKind) {
  for (const NormKind norm : {NormKind::layer, NormKind::rms}) {
    for (const MlpKind mlp : {MlpKind::gelu, MlpKind::swiglu}) {
      for (const Positions positions : {Positions::learned, Positions::rope}) {
        for (const bool tied : {false, true}) {
          for (const bool bias : {false, true}) {
            GptConfig config = kTiny;
            config.norm = norm;
            config.mlp = mlp;
            config.positions = positions;
            config.tied = tied;
            config.bias = bias;
            check_gradients(config);
          }
        }
      }
    }
  }
}

TEST(GptTest, GradientsWithDropout) {
  GptConfig config = kTiny;
  config.dropout = 0.3;
  for (const bool selective : {false, true}) {
    config.compute.selective_recomputation = selective;
    check_gradients(config);
  }
}

TEST(GptTest, RefusesInvalidSizes) {
  const auto refused = [](auto change) {
    GptConfig config = kTiny;
    change(config);
    try {
      Gpt model(config);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_argument;
    }
  };
  EXPECT_FALSE(refused([](GptConfig&) {}));
  EXPECT_TRUE(refused([](GptConfig& config) { config.layers = 0; }));
  EXPECT_TRUE(refused([](GptConfig& config) { config.heads = 3; }));
  EXPECT_TRUE(refused([](GptConfig& config) { config.width = -4; }));
  EXPECT_TRUE(refused([](GptConfig& config) { config.context = 0; }));
  EXPECT_TRUE(refused([](GptConfig& config) { config.vocabulary = 0; }));
  EXPECT_TRUE(refused([](GptConfig& config) { config.hidden = -1; }));
  EXPECT_TRUE(refused([](GptConfig& config) { config.dropout = 1; }));
  EXPECT_TRUE(refused([](GptConfig& config) { config.dropout = NAN; }));
  EXPECT_TRUE(refused([](GptConfig& config) {
    config.heads = 4;
    config.positions = Positions::rope;  // the size of the heads is 1, which is odd
  }));
}

TEST(GptTest, RefusesUnknownTokens) {
  Gpt model(kTiny);
  const BoundParameters parameters(model.parameters(), DType::f32);
  TestPass test(DType::f32);
  TokenBatch batch(1, 5, 7);
  test.batch = batch.micro_batch;
  batch.tokens[4] = 7;
  EXPECT_THROW(forward(model, test.pass), Error);
  batch.tokens[4] = 6;
  batch.targets[0] = 7;
  EXPECT_THROW(forward(model, test.pass), Error);
  batch.targets[0] = 0;
  EXPECT_NO_THROW(forward(model, test.pass));
}

}  // namespace
}  // namespace tutti::training::testing
