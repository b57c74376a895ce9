#include "training/models/resnet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <thread>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/shared_sum.h"
#include "training/core/random.h"
#include "training/pipeline/runner.h"

namespace tutti::training::testing {
namespace {

// Sizes are odd. One block keeps the shape of its input, the other one changes it.
ResNetConfig small_config() {
  return {.channels = 3, .height = 7, .width = 5, .classes = 4, .blocks = {1, 1}, .widths = {5, 6}};
}

struct ImageBatch {
  ImageBatch(const ResNetConfig& config, int64_t samples, int64_t first = 0) {
    const int64_t size = config.height * config.width * config.channels;
    for (int64_t i = first * size; i < (first + samples) * size; ++i) {
      images.push_back(scale_symmetric(random_bits(1, 2, static_cast<uint64_t>(i)), 0.5f) + 0.5f);
    }
    for (int64_t i = first; i < first + samples; ++i) {
      targets.push_back(static_cast<int32_t>(i % config.classes));
    }
  }
  MicroBatch micro_batch() const {
    return {.samples = std::ssize(targets), .features = images, .targets = targets};
  }

  std::vector<float> images;
  std::vector<int32_t> targets;
};

// A model and its parameters. Models of equal configurations have equal parameters.
struct Bound {
  explicit Bound(const ResNetConfig& config, DType dtype = DType::f64,
                 StatisticsReducer* reducer = nullptr, bool checkpoint_units = false)
      : model(config, reducer),
        parameters(model.parameters(), dtype, 0.25, true),
        runner(model, {.dtype = dtype, .checkpoint_units = checkpoint_units}) {}

  PassResult train(const ImageBatch& batch) { return runner.train(batch.micro_batch(), {}, hooks); }
  std::vector<float> buffers() {
    std::vector<float> all;
    for (const NamedBuffer& buffer : model.buffers()) {
      all.insert(all.end(), buffer.values.begin(), buffer.values.end());
    }
    return all;
  }
  std::vector<double> gradients() {
    std::vector<double> all;
    for (int i = 0; i < parameters.size(); ++i) {
      for (const double value : doubles(parameters.gradient(i))) all.push_back(value);
    }
    return all;
  }

  ResNet model;
  BoundParameters parameters;
  UnitHooks hooks;
  ModelRunner runner;
};

TEST(ResNetTest, NamesAndShapes) {
  ResNet model(small_config());
  std::vector<std::string> names;
  for (const ParameterSpec& spec : model.parameters().specs()) names.push_back(spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight",
                                             "bn1.weight",
                                             "bn1.bias",
                                             "layer1.0.conv1.weight",
                                             "layer1.0.bn1.weight",
                                             "layer1.0.bn1.bias",
                                             "layer1.0.conv2.weight",
                                             "layer1.0.bn2.weight",
                                             "layer1.0.bn2.bias",
                                             "layer2.0.conv1.weight",
                                             "layer2.0.bn1.weight",
                                             "layer2.0.bn1.bias",
                                             "layer2.0.conv2.weight",
                                             "layer2.0.bn2.weight",
                                             "layer2.0.bn2.bias",
                                             "layer2.0.downsample.0.weight",
                                             "layer2.0.downsample.1.weight",
                                             "layer2.0.downsample.1.bias",
                                             "fc.weight",
                                             "fc.bias"}));
  EXPECT_EQ(model.parameters().specs()[0].shape, (std::vector<int64_t>{5, 3, 3, 3}));
  EXPECT_EQ(model.parameters().specs()[15].shape, (std::vector<int64_t>{6, 5, 1, 1}));
  std::vector<std::string> units;
  for (const auto& unit : model.units()) units.push_back(unit->name());
  EXPECT_EQ(units, (std::vector<std::string>{"stem", "layer1.0", "layer2.0", "head"}));
  std::vector<std::string> buffers;
  for (const NamedBuffer& buffer : model.buffers()) buffers.push_back(buffer.name);
  EXPECT_EQ(buffers.size(), 12u);
  EXPECT_EQ(buffers.front(), "bn1.running_mean");
  EXPECT_EQ(buffers.back(), "layer2.0.downsample.1.running_var");
  // Products per sample: 35 pixels x (9 * 3 * 5 + 2 * 9 * 5 * 5), then 12 pixels x (9 * 5 * 6 + 9 *
  // 6 * 6 + 5 * 6), then 6 * 4.
  EXPECT_EQ(model.flops_per_sample(), 6.0 * (35 * (135 + 450) + 12 * (270 + 324 + 30) + 24));
  EXPECT_EQ(in_words(model.configuration()),
            "resnet blocks=1,1 widths=5,6 sync_bn=false zero_last_gain=true channels=3 height=7 "
            "width=5 classes=4");
}

// The step of the central differences is so small that hardly any ReLU changes its branch.
TEST(ResNetTest, Gradients) {
  Bound bound(small_config());
  const ImageBatch batch(small_config(), 3);
  bound.train(batch);
  const std::vector<double> found = bound.gradients();
  const double largest = std::abs(*std::max_element(
      found.begin(), found.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
  size_t at = 0;
  for (int index = 0; index < bound.parameters.size(); ++index) {
    const Tensor values = bound.parameters.value(index);
    for (int64_t i = 0; i < values.size(); ++i, ++at) {
      if (i % 7 != 0) continue;
      constexpr double kStep = 1e-6;
      const int64_t row = i / values.cols, col = i % values.cols;
      const double value = get(values, row, col);
      set(values, row, col, value + kStep);
      const double above = bound.train(batch).loss_sum;
      set(values, row, col, value - kStep);
      const double below = bound.train(batch).loss_sum;
      set(values, row, col, value);
      ASSERT_NEAR(found[at], (above - below) / (2 * kStep), 1e-8 * largest)
          << bound.model.parameters().specs()[static_cast<size_t>(index)].name << " " << i;
    }
  }
}

TEST(ResNetTest, OtherTypesAgreeWithF64) {
  const ResNetConfig config = small_config();
  const ImageBatch batch(config, 8);
  Bound exact(config);
  const double loss = exact.train(batch).loss_sum;
  struct Tolerance {
    DType dtype;
    double loss;       // relative
    double gradients;  // relative to the largest
  };
  for (const Tolerance tolerance :
       {Tolerance{DType::f32, 1e-6, 1e-5}, Tolerance{DType::bf16, 0.02, 0.06},
        Tolerance{DType::f16, 0.003, 0.01}}) {
    SCOPED_TRACE(name(tolerance.dtype));
    Bound bound(config, tolerance.dtype);
    EXPECT_NEAR(bound.train(batch).loss_sum, loss, tolerance.loss * loss);
    EXPECT_LT(relative_distance(bound.gradients(), exact.gradients()), tolerance.gradients);
  }
}

TEST(ResNetTest, EvaluationUsesRunningStatistics) {
  const ResNetConfig config = small_config();
  Bound bound(config, DType::f32);
  const ImageBatch one(config, 1), three(config, 3);
  for (int step = 0; step < 3; ++step) bound.train(ImageBatch(config, 4, 4 * step));
  const std::vector<float> buffers = bound.buffers();
  const std::vector<double> alone = doubles(bound.runner.predict(one.micro_batch(), bound.hooks));
  const std::vector<double> together =
      doubles(bound.runner.predict(three.micro_batch(), bound.hooks));
  // An image's logits do not depend on the rest of the batch, and the statistics are not updated.
  EXPECT_LT(relative_distance(alone, std::vector<double>(together.begin(), together.begin() + 4)),
            1e-6);
  EXPECT_EQ(bound.buffers(), buffers);
  EXPECT_NE(buffers, Bound(config, DType::f32).buffers());
}

TEST(ResNetTest, RecomputationChangesNothing) {
  const ResNetConfig config = small_config();
  const ImageBatch batch(config, 4);
  Bound kept(config, DType::f32), recomputed(config, DType::f32, nullptr, true);
  EXPECT_EQ(kept.train(batch).loss_sum, recomputed.train(batch).loss_sum);
  EXPECT_TRUE(same_gradients(kept.parameters, recomputed.parameters));
  EXPECT_EQ(kept.buffers(), recomputed.buffers());
}

TEST(ResNetTest, RanksWithSyncBatchNormEqualTheWholeBatch) {
  const ResNetConfig config = small_config();
  Bound whole(config);
  const double loss = whole.train(ImageBatch(config, 6)).loss_sum;
  const auto on_two_ranks = [&](bool synchronized) {
    SharedSum shared(2);
    Bound first(config, DType::f64, synchronized ? &shared.reducer(0) : nullptr);
    Bound second(config, DType::f64, synchronized ? &shared.reducer(1) : nullptr);
    double losses[2];
    {
      std::jthread other([&] { losses[1] = second.train(ImageBatch(config, 4, 2)).loss_sum; });
      losses[0] = first.train(ImageBatch(config, 2)).loss_sum;
    }
    std::vector<double> sums = first.gradients();
    const std::vector<double> more = second.gradients();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    sums.push_back(losses[0] + losses[1]);
    if (synchronized) {
      EXPECT_EQ(first.buffers(), second.buffers());
      const std::vector<float> mine = first.buffers(), all = whole.buffers();
      for (size_t i = 0; i < mine.size(); ++i) EXPECT_NEAR(mine[i], all[i], 1e-6);
    }
    return sums;
  };
  std::vector<double> expected = whole.gradients();
  expected.push_back(loss);
  EXPECT_LT(relative_distance(on_two_ranks(true), expected), 1e-10);
  EXPECT_GT(relative_distance(on_two_ranks(false), expected), 1e-2);
}

TEST(ResNetTest, BadSizes) {
  const auto with = [](auto change) {
    ResNetConfig config = small_config();
    change(config);
    return ResNet(config).configuration();
  };
  EXPECT_THROW(with([](ResNetConfig& c) { c.channels = 0; }), Error);
  EXPECT_THROW(with([](ResNetConfig& c) { c.classes = 0; }), Error);
  EXPECT_THROW(with([](ResNetConfig& c) { c.blocks = {}; }), Error);
  EXPECT_THROW(with([](ResNetConfig& c) { c.blocks = {1, 0}; }), Error);
  EXPECT_THROW(with([](ResNetConfig& c) { c.widths = {4}; }), Error);
  EXPECT_THROW(with([](ResNetConfig& c) { c.widths = {4, -1}; }), Error);

  Bound bound(small_config(), DType::f32);
  ImageBatch batch(small_config(), 2);
  batch.images.pop_back();
  EXPECT_THROW(bound.train(batch), Error);
}

// ---- patterns in noise of ten kinds: five directions, each in two widths ----

constexpr int64_t kSize = 12;

bool is_bright(int64_t kind, int64_t row, int64_t col) {
  const int64_t width = kind < 5 ? 2 : 3;
  const int64_t places[] = {row / width, col / width, (row + col) / width,
                            (row - col + kSize * width) / width, row / width + col / width};
  return places[kind % 5] % 2 == 0;
}

ImageBatch patterns(int64_t samples, uint64_t stream) {
  ImageBatch batch({}, 0);
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t kind = sample % 10;
    batch.targets.push_back(static_cast<int32_t>(kind));
    for (int64_t i = 0; i < kSize * kSize; ++i) {
      const uint64_t bits = random_bits(5, stream, static_cast<uint64_t>(sample * 1000 + i));
      batch.images.push_back(scale_symmetric(bits, 0.25f) + 0.25f +
                             (is_bright(kind, i / kSize, i % kSize) ? 0.5f : 0.0f));
    }
  }
  return batch;
}

TEST(ResNetTest, LearnsPatterns) {
  const ResNetConfig config{.height = kSize, .width = kSize, .blocks = {1, 1}, .widths = {8, 16}};
  ResNet model(config);
  // Gradient descent with momentum (0.9) and a cosine schedule, without the library's optimizer.
  std::vector<std::vector<float>> values, gradients, velocities;
  for (const ParameterSpec& spec : model.parameters().specs()) {
    const auto count = static_cast<size_t>(spec.count());
    values.emplace_back(count);
    gradients.emplace_back(count);
    velocities.emplace_back(count);
    initial_values(spec, 1, 0, values.back());
  }
  for (int i = 0; i < model.parameters().size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const ParameterSpec& spec = model.parameters().specs()[at];
    const int64_t cols = spec.count() / spec.local_rows();
    model.parameters().set_value(i,
                                 tensor_at(values[at].data(), DType::f32, spec.local_rows(), cols));
    model.parameters().set_gradient(
        i, tensor_at(gradients[at].data(), DType::f32, spec.local_rows(), cols));
  }
  UnitHooks hooks;
  ModelRunner runner(model, {});
  constexpr int kSteps = 60;
  for (int step = 0; step < kSteps; ++step) {
    const ImageBatch batch = patterns(40, static_cast<uint64_t>(step));
    runner.train(batch.micro_batch(), {1.0 / 40}, hooks);
    const auto rate = static_cast<float>(0.1 * (1 + std::cos(std::numbers::pi * step / kSteps)));
    for (size_t p = 0; p < values.size(); ++p) {
      for (size_t i = 0; i < values[p].size(); ++i) {
        velocities[p][i] = 0.9f * velocities[p][i] + gradients[p][i];
        values[p][i] -= rate * velocities[p][i];
        gradients[p][i] = 0;
      }
    }
  }
  const ImageBatch unseen = patterns(400, 1000);
  EXPECT_EQ(runner.evaluate(unseen.micro_batch(), hooks).correct, 400);
}

}  // namespace
}  // namespace tutti::training::testing
