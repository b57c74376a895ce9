// Tests models in f32, bf16 and f16 against the same model in f64, with the same parameters
// (rounded to the type).
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/model_pass.h"
#include "training/models/gpt.h"

namespace tutti::training::testing {
namespace {

// Tolerances relative to the largest value. They allow for a few roundings in each of about ten
// layers.
struct Tolerance {
  double logits;
  double gradients;
  double loss;
};

Tolerance tolerance_of(DType type) {
  switch (type) {
    case DType::f32:
      return {2e-6, 1e-5, 1e-6};
    case DType::f16:
      return {4e-3, 1e-2, 1e-3};
    default:
      return {3e-2, 8e-2, 1e-2};
  }
}

// Checks one micro-batch. Its gradients are added to gradients in f32 or, with `one_pass`, rounded
// once to the model's type.
void check(const GptConfig& config, DType type, bool one_pass) {
  SCOPED_TRACE(std::string(name(type)) + (one_pass ? ", gradients too: " : ": ") +
               in_words(Gpt(config).configuration()));
  Gpt model(config), wide_model(config);
  const BoundParameters parameters(model.parameters(), type, 0.15, one_pass);
  EXPECT_EQ(parameters.gradient(0).dtype, one_pass ? type : DType::f32);
  BoundParameters wide_parameters(wide_model.parameters(), DType::f64);
  wide_parameters.copy_values(parameters);
  const TokenBatch batch(3, config.context, config.vocabulary);
  TestPass test(type), wide(DType::f64);
  for (TestPass* pass : {&test, &wide}) {
    pass->batch = batch.micro_batch;
    pass->pass.loss_scale = 1.0 / static_cast<double>(batch.targets.size());
  }
  // Without loss scaling, gradients in f16 would underflow.
  constexpr double kScale = 1024;
  test.pass.loss_scale *= kScale;
  const Tolerance tolerance = tolerance_of(type);
  EXPECT_LT(relative_distance(forward(model, test.pass), forward(wide_model, wide.pass)),
            tolerance.logits);
  EXPECT_NEAR(test.pass.loss.get().sum / wide.pass.loss.get().sum, 1, tolerance.loss);
  backward(model, test.pass);
  backward(wide_model, wide.pass);
  for (int i = 0; i < parameters.size(); ++i) {
    std::vector<double> gradient = doubles(parameters.gradient(i));
    for (double& value : gradient) value /= kScale;
    EXPECT_LT(relative_distance(gradient, doubles(wide_parameters.gradient(i))),
              tolerance.gradients)
        << model.parameters().specs()[static_cast<size_t>(i)].name;
  }
}

void check(const GptConfig& config, DType type) {
  for (const bool one_pass : {false, true}) check(config, type, one_pass);
}

class GptPrecisionTest : public ::testing::TestWithParam<DType> {};

TEST_P(GptPrecisionTest, Gpt2) {
  check({.layers = 2, .heads = 3, .width = 24, .context = 140, .vocabulary = 61}, GetParam());
}

TEST_P(GptPrecisionTest, Llama) {
  check({.layers = 2,
         .heads = 3,
         .width = 24,
         .context = 140,
         .vocabulary = 61,
         .norm = NormKind::rms,
         .mlp = MlpKind::swiglu,
         .positions = Positions::rope,
         .tied = false,
         .bias = false},
        GetParam());
}

TEST_P(GptPrecisionTest, Dropout) {
  check({.layers = 1, .heads = 3, .width = 24, .context = 33, .vocabulary = 61, .dropout = 0.1},
        GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, GptPrecisionTest,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace tutti::training::testing
