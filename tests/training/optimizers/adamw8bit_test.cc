#include "training/optimizers/adamw8bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/training/optimizers/owners.h"
#include "training/optimizers/dynamic_map.h"

namespace tutti::training {
namespace {

constexpr AdamWOptions kOptions{.moments = {.beta2 = 0.99}, .weight_decay = 0.1};

// Trains one parameter of a single owner, with different gradients in each step.
class Trained {
 public:
  std::vector<float> values;
  std::vector<float> gradients;

  Trained(std::unique_ptr<Optimizer> optimizer, std::vector<int64_t> shape)
      : optimizer_(std::move(optimizer)),
        spec_{.name = "weight", .shape = std::move(shape)},
        pieces_{{.piece = {.count = spec_.count()}, .spec = &spec_}},
        floats_(optimizer_->place_states(pieces_)),
        states_(2, std::vector<float>(static_cast<size_t>(floats_))) {
    for (int64_t i = 0; i < spec_.count(); ++i) values.push_back(example_value(spec_, i));
    gradients.resize(values.size());
    pieces_[0].master = values;
    pieces_[0].gradient = tensor_at(gradients.data(), DType::f32, 1, spec_.count());
  }

  void step() {
    ++steps_;
    for (int64_t i = 0; i < spec_.count(); ++i) {
      gradients[static_cast<size_t>(i)] = example_gradient(spec_, i, steps_);
    }
    update();
  }
  void update() {
    const std::vector<std::span<float>> states(states_.begin(), states_.end());
    ThreadReducers reducers(1);
    optimizer_->step(pieces_, states,
                     {.step = std::max<int64_t>(1, steps_), .learning_rate = 0.01, .parameters = 1},
                     reducers.of(0));
  }

  int64_t floats() const { return floats_; }
  BlockwiseState state(size_t index) {
    return {states_[index].data() + pieces_[0].first_state(), spec_.count()};
  }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  ParameterSpec spec_;
  std::vector<OwnedPiece> pieces_;
  int64_t floats_;
  std::vector<std::vector<float>> states_;
  int64_t steps_ = 0;
};

Trained in_8_bits(std::vector<int64_t> shape) {
  return {std::make_unique<AdamW8Bit>(kOptions), std::move(shape)};
}

// The bytes of both moments are counted.
TEST(AdamW8Bit, TakesAboutTwoBytesAParameter) {
  constexpr int64_t kCount = 1 << 20;
  EXPECT_EQ(2 * sizeof(float) * static_cast<size_t>(in_8_bits({1024, 1024}).floats()),
            2 * kCount + 2 * sizeof(float) * kCount / 256);
  EXPECT_EQ(2 * state_floats(StateFormat::blockwise8, kCount) * 4, 2.03125 * kCount);
}

TEST(AdamW8Bit, SmallParametersHaveTheBitsOfAdamW) {
  Trained small = in_8_bits({4095});
  Trained expected(std::make_unique<AdamW>(kOptions), {4095});
  for (int step = 0; step < 4; ++step) {
    small.step();
    expected.step();
    ASSERT_EQ(small.values, expected.values);
  }
}

// The last block is smaller. As in bitsandbytes, the values are updated with the new moments before
// the moments are rounded.
TEST(AdamW8Bit, RoundsMomentsAfterTheUpdate) {
  constexpr int64_t kCount = 5000;
  Trained trained = in_8_bits({kCount});
  std::vector<double> w(trained.values.begin(), trained.values.end());
  std::vector<float> m(kCount), v(kCount);
  for (int64_t t = 1; t <= 5; ++t) {
    trained.step();
    for (size_t i = 0; i < w.size(); ++i) {
      const float g = trained.gradients[i];
      m[i] += (g - m[i]) * 0.1F;
      v[i] = 0.99F * v[i] + 0.01F * g * g;
      const double root = std::sqrt(v[i] / (1 - std::pow(0.99, t))) + 1e-8;
      w[i] = w[i] * (1 - 0.01 * 0.1) - 0.01 * m[i] / (1 - std::pow(0.9, t)) / root;
      ASSERT_NEAR(trained.values[i], w[i], 2e-6 * std::max(1.0, std::abs(w[i]))) << t << ' ' << i;
    }
    for (const size_t which : {0, 1}) {
      const auto& map = (which == 0 ? signed_dynamic_map() : unsigned_dynamic_map()).values;
      std::vector<float>& moment = which == 0 ? m : v;
      const BlockwiseState state = trained.state(which);
      for (size_t first = 0; first < kCount; first += kStateBlock) {
        const size_t end = std::min<size_t>(kCount, first + kStateBlock);
        float scale = 0;
        for (size_t i = first; i < end; ++i) scale = std::max(scale, std::abs(moment[i]));
        ASSERT_EQ(state.scales[first / kStateBlock], scale);
        for (size_t i = first; i < end; ++i) {
          ASSERT_EQ(state.codes[i], nearest_code(map, moment[i] / scale));
          moment[i] = map[state.codes[i]] * scale;
        }
      }
    }
  }
}

TEST(AdamW8Bit, WithoutGradientsMomentsStayZero) {
  Trained trained = in_8_bits({4096});
  const std::vector<float> before = trained.values;
  trained.update();
  trained.update();
  for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(trained.values[i], before[i], 0.01);
  for (const size_t which : {0, 1}) {
    for (int64_t i = 0; i < 4096; ++i) {
      ASSERT_EQ(trained.state(which).scales[i / kStateBlock], 0);
      ASSERT_EQ(trained.state(which).codes[i], which == 0 ? 127 : 0);
    }
  }
}

// Four ranks have parts of a matrix with rows of 512 elements: whole rows, which are accepted, or
// 128 elements of each row, which are refused.
TEST(AdamW8Bit, RefusesParametersThatAreCutInsideOfBlocks) {
  const AdamW8Bit optimizer(kOptions);
  ParameterSpec spec{.name = "weight",
                     .shape = {64, 512},
                     .placement = {.cuts = {{.axis = Axis::tensor, .dimension = 0}}},
                     .mesh = MeshPlace{.sizes = {4, 1, 1, 1, 1, 1}}};
  EXPECT_EQ(optimizer.state_format(spec), StateFormat::blockwise8);
  spec.placement.cuts[0].dimension = 1;
  EXPECT_THROW(optimizer.state_format(spec), Error);
}

}  // namespace
}  // namespace tutti::training
