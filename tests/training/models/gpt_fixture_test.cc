// Tests the tiny GPTs of tests/training/fixtures against PyTorch's results in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/model_pass.h"
#include "tests/training/support/plain_adamw.h"
#include "training/checkpoint/safetensors.h"
#include "training/models/gpt.h"

namespace tutti::training::testing {
namespace {

// The scripts that made the fixtures use these sizes.
constexpr GptConfig kGpt2{
    .layers = 2, .heads = 2, .width = 24, .context = 13, .vocabulary = 61, .hidden = 96};
constexpr GptConfig kLlama{.layers = 2,
                           .heads = 2,
                           .width = 24,
                           .context = 13,
                           .vocabulary = 61,
                           .norm = NormKind::rms,
                           .mlp = MlpKind::swiglu,
                           .hidden = 40,
                           .positions = Positions::rope,
                           .tied = false,
                           .bias = false};
constexpr int kSteps = 10;

struct Family {
  const char* file;
  GptConfig config;
};
constexpr Family kFamilies[] = {{"gpt2_tiny", kGpt2}, {"llama_tiny", kLlama}};

class Fixture {
 public:
  explicit Fixture(const std::string& name)
      : file_("tests/training/fixtures/" + name + ".safetensors") {}

  std::vector<double> doubles(const std::string& name) const {
    const StoredTensor& tensor = find(name);
    return tensor.info.dtype == DType::f64 ? as<double, double>(tensor) : as<float, double>(tensor);
  }
  std::vector<int32_t> integers(const std::string& name) const {
    return as<int32_t, int32_t>(find(name));
  }

 private:
  const StoredTensor& find(const std::string& name) const {
    const StoredTensor* tensor = file_.find(name);
    if (tensor == nullptr) throw Error(ErrorCode::internal, "the fixture has no " + name);
    return *tensor;
  }

  template <typename Stored, typename T>
  static std::vector<T> as(const StoredTensor& tensor) {
    std::vector<Stored> values(tensor.bytes.size() / sizeof(Stored));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return {values.begin(), values.end()};
  }

  SafetensorsFile file_;
};

// The model with the fixture's parameters and batch.
struct Rig {
  Rig(const Family& family, DType dtype)
      : fixture(family.file),
        model(family.config),
        parameters(model.parameters(), dtype),
        tokens(fixture.integers("tokens")),
        targets(fixture.integers("targets")),
        test(dtype) {
    for (int i = 0; i < parameters.size(); ++i) {
      assign(parameters.value(i), fixture.doubles(name_of(i)));
    }
    test.batch.samples = std::ssize(tokens) / family.config.context;
    test.batch.tokens = tokens;
    test.batch.targets = targets;
    test.pass.loss_scale = 1.0 / static_cast<double>(targets.size());
  }

  const std::string& name_of(int parameter) {
    return model.parameters().specs()[static_cast<size_t>(parameter)].name;
  }
  double mean_loss() const { return test.pass.loss.get().sum * test.pass.loss_scale; }

  Fixture fixture;
  Gpt model;
  BoundParameters parameters;
  std::vector<int32_t> tokens, targets;
  TestPass test;
};

class GptFixtureTest : public ::testing::TestWithParam<Family> {};

void expect_first_step(const Family& family, DType dtype, double tolerance) {
  Rig rig(family, dtype);
  const Tensor logits = forward(rig.model, rig.test.pass);
  EXPECT_LT(relative_distance(doubles(logits), rig.fixture.doubles("logits")), tolerance);
  EXPECT_NEAR(rig.mean_loss(), rig.fixture.doubles("loss")[0], tolerance);
  backward(rig.model, rig.test.pass);
  for (int i = 0; i < rig.parameters.size(); ++i) {
    EXPECT_LT(relative_distance(doubles(rig.parameters.gradient(i)),
                                rig.fixture.doubles("grad." + rig.name_of(i))),
              tolerance)
        << rig.name_of(i);
  }
}

TEST_P(GptFixtureTest, LogitsLossAndGradientsInF64) {
  expect_first_step(GetParam(), DType::f64, 1e-12);
}

TEST_P(GptFixtureTest, LogitsLossAndGradientsInF32) {
  expect_first_step(GetParam(), DType::f32, 2e-6);
}

void expect_training(const Family& family, DType dtype, double tolerance) {
  Rig rig(family, dtype);
  PlainAdamW optimizer(rig.model.parameters(), rig.parameters, {.decay = 0.1});
  const std::vector<double> losses = rig.fixture.doubles("losses");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
  const auto run = [&](bool train) {
    const ArenaScope scope(rig.test.arena);
    rig.parameters.clear_gradients();
    forward(rig.model, rig.test.pass);
    if (train) backward(rig.model, rig.test.pass);
    return rig.mean_loss();
  };
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(run(true), losses[static_cast<size_t>(step)], tolerance) << step;
    optimizer.step();
  }
  EXPECT_NEAR(run(false), rig.fixture.doubles("final_loss")[0], tolerance);
  EXPECT_LT(losses.back(), losses.front() - 1);
}

TEST_P(GptFixtureTest, TenStepsOfAdamWInF64) { expect_training(GetParam(), DType::f64, 1e-6); }

TEST_P(GptFixtureTest, TenStepsOfAdamWInF32) { expect_training(GetParam(), DType::f32, 2e-5); }

INSTANTIATE_TEST_SUITE_P(All, GptFixtureTest, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.file); });

}  // namespace
}  // namespace tutti::training::testing
