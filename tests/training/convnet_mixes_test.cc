// Tests convolutions that are batch-, model- or domain-parallel, followed by fully connected layers
// on the same ranks. With any mix, the same model is trained, and the bytes sent agree with the
// formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/divided_gradients.h"
#include "tests/training/support/mixed_runs.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/convnet.h"
#include "training/planner/mix_costs.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::TinyRun;

constexpr auto b = LayerSplit::batch, m = LayerSplit::model, d = LayerSplit::domain;

// The height and width of the images, and the numbers of filters and classes, are not divisible by
// 2, 3 or 4 ranks.
ConvnetConfig uneven(const Mix& mix = {}, int64_t kernel = 3) {
  return {.channels = 2,
          .height = 7,
          .width = 5,
          .classes = 5,
          .filters = {5, 7},
          .strides = {1, 2},
          .kernel = kernel,
          .widths = {6},
          .compute = {.mix = mix}};
}
constexpr size_t kLayers = 4, kConvolutions = 2;

void check_gradients(int ranks, const ConvnetConfig& config, int64_t samples, bool recomputes) {
  SCOPED_TRACE(cat(ranks, " ranks, ", to_text(config.compute.mix), ", ", samples,
                   " samples, kernel ", config.kernel, recomputes ? ", recomputed" : ""));
  testing::check_divided_gradients(
      ranks, [&](const MeshPlace& place) { return std::make_unique<Convnet>(config, place); },
      testing::random_images(config.channels * config.height * config.width, config.classes,
                             samples),
      recomputes);
}

TEST(ConvnetMixes, AllHaveTheGradientsOfTheUndividedModel) {
  for (const Mix& mix : all_mixes(kLayers, kConvolutions)) {
    for (const int ranks : {1, 2, 3, 4}) check_gradients(ranks, uneven(mix), 5, false);
  }
}

TEST(ConvnetMixes, FewSamplesAndWideWindowsGiveTheSameGradients) {
  for (const Mix& mix : {Mix{d, d, b, m}, {b, d, m, b}, {m, d, m, m}, {d, b, b, b}, {d, m, m, b}}) {
    for (const int64_t kernel : {1, 2, 5, 7}) {
      check_gradients(4, uneven(mix, kernel), 1, false);
      check_gradients(3, uneven(mix, kernel), 2, true);
    }
  }
}

// The last images have 4 rows, so that one of the 5 ranks has none.
TEST(ConvnetMixes, TilesMayBeEmpty) {
  check_gradients(5, uneven({d, d, b, m}), 3, false);
  check_gradients(5, uneven({b, d, m, b}), 3, false);
}

// --- training ---

TinyRun run_of(const Mix& mix, int tensor = 1, int data = 1, int zero = 0) {
  return testing::mixed_run(
      [mix](const MeshPlace& place) { return std::make_unique<Convnet>(uneven(mix), place); },
      ResNetConfig{.channels = 2, .height = 7, .width = 5, .classes = 5}, tensor, data, zero);
}

void expect_same_training(const Mix& mix, int tensor, int data, int zero, const Outcome& alone) {
  SCOPED_TRACE(cat(to_text(mix), ": tensor ", tensor, " x data ", data, ", ZeRO ", zero));
  const Outcome found = testing::train(tensor * data, run_of(mix, tensor, data, zero));
  EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
  EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-4);
  EXPECT_NEAR(found.validation, alone.validation, 1e-5 * alone.validation);
}

TEST(ConvnetMixes, TrainTheSameModelBesideDataRanksInEveryStageOfZero) {
  const Outcome alone = testing::train(1, run_of({}));
  int zero = 0;
  for (const Mix& mix : all_mixes(kLayers, kConvolutions)) {
    for (const auto& [tensor, data] : {std::pair(2, 1), {3, 1}, {4, 1}, {2, 2}}) {
      zero = (zero + 1) % 4;
      expect_same_training(mix, tensor, data, zero, alone);
    }
  }
}

TEST(ConvnetMixes, TrainInHalfPrecision) {
  const auto half = [](const Mix& mix, int tensor) {
    TinyRun run = run_of(mix, tensor);
    run.replica.storage.dtype = DType::bf16;
    return run;
  };
  const Outcome alone = testing::train(1, half({}, 1));
  for (const Mix& mix : {Mix{d, d, b, m}, {b, d, m, b}, {m, d, m, m}, {d, m, b, b}}) {
    const Outcome found = testing::train(2, half(mix, 2));
    EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 0.02) << to_text(mix);
  }
}

// --- checkpoints ---

class ConvnetCheckpoints : public FolderTest {};

TEST_F(ConvnetCheckpoints, ResumeUnderAnotherMix) {
  const std::vector<double> expected =
      testing::losses_behind_save(run_of({d, m, b, m}, 2), path("saved"));
  for (const auto& [mix, ranks] : {std::pair(Mix{d, d, b, b}, 3), {{m, d, m, b}, 2}, {{}, 1}}) {
    SCOPED_TRACE(to_text(mix));
    testing::expect_goes_on(run_of(mix, ranks, 1, ranks), ranks, path("saved"), expected);
  }
}

// --- bytes sent ---

// All sizes are multiples of the padding of buckets.
constexpr int64_t kClasses = 32, kSide = 8, kChannels = 2, kFilters = 32;
ConvnetConfig even(const Mix& mix) {
  return {.channels = kChannels,
          .height = kSide,
          .width = kSide,
          .classes = kClasses,
          .filters = {kFilters, kFilters},
          .strides = {1, 1},
          .widths = {64},
          .compute = {.mix = mix}};
}

std::pair<double, double> sent_by(const Mix& mix, int ranks, int64_t samples) {
  return testing::sent_by(
      [&](const MeshPlace& place) { return std::make_unique<Convnet>(even(mix), place); },
      ResNetConfig{.channels = kChannels, .height = kSide, .width = kSide, .classes = kClasses},
      ranks, samples);
}

TEST(ConvnetMixes, SendTheBytesOfTheFormulas) {
  constexpr int64_t kPixels = kSide * kSide;
  const std::vector<int64_t> widths = {kPixels * kChannels, kPixels * kFilters, kPixels * kFilters,
                                       64, kClasses};
  for (const int ranks : {2, 4}) {
    for (const int64_t samples : {8, 12}) {
      SCOPED_TRACE(cat(ranks, " ranks, ", samples, " samples"));
      const double part = static_cast<double>(ranks - 1) / ranks;
      const auto values = [&](int64_t count) {
        return static_cast<double>(samples * count) * sizeof(float);
      };
      const auto [units, sums] = sent_by({m, m, m, m}, ranks, samples);
      EXPECT_DOUBLE_EQ(units, planner::model_parallel_bytes(widths, samples, ranks, sizeof(float)));
      EXPECT_EQ(sums, 0);
      const int64_t convolved = 9 * (kChannels + kFilters) * kFilters + 2 * kFilters;
      const int64_t connected = kPixels * kFilters * 64 + 64 * kClasses + 64 + kClasses;
      const auto [loss, gradients] = sent_by({b, b, b, b}, ranks, samples);
      EXPECT_NEAR(gradients, 2 * part * static_cast<double>(convolved + connected) * sizeof(float),
                  1e-6);
      EXPECT_NEAR(loss, 2 * part * 2 * sizeof(double), 1e-9);
      // The first rank has one neighbour. It sends one row of pixels of each convolution's input,
      // and one row of the second convolution's output gradients. Then ranks exchange parts of
      // images, because each has only some rows, and later return the gradients.
      const auto [halos, more] = sent_by({d, d, b, b}, ranks, samples);
      EXPECT_NEAR(halos - loss,
                  values(kSide * kChannels) + 2 * values(kSide * kFilters) +
                      2 * part * values(kPixels * kFilters) / ranks,
                  1e-6);
      EXPECT_EQ(more, gradients);
    }
  }
}

// --- refused mixes ---

std::string refusal(const ConvnetConfig& config, int ranks) {
  return error_of([&] { Convnet(config, MeshPlace{.sizes = {ranks, 1, 1, 1, 1, 1}}); });
}

TEST(ConvnetMixes, MistakesAreNamed) {
  EXPECT_THAT(refusal(uneven({d, d, d, b}), 2),
              AllOf(HasSubstr("layer 2 cannot be domain-parallel (d)"),
                    HasSubstr("the layer is fully connected"), HasSubstr("use b or m")));
  EXPECT_THAT(refusal(uneven({m, d, b, b}), 6),
              AllOf(HasSubstr("the 5 outputs of layer 0 cannot be divided over 6 ranks"),
                    HasSubstr("use b or d for this layer")));
  EXPECT_THAT(refusal(uneven({d, d}), 2), HasSubstr("the mix has 2 layers, but the model has 4"));
  const auto with = [](auto change) {
    ConvnetConfig config = uneven();
    change(config);
    return refusal(config, 1);
  };
  EXPECT_THAT(with([](ConvnetConfig& c) { c.strides = {1}; }),
              HasSubstr("2 convolutions and 1 strides"));
  EXPECT_THAT(with([](ConvnetConfig& c) { c.strides = {1, 0}; }), HasSubstr("stride"));
  EXPECT_THAT(with([](ConvnetConfig& c) { c.kernel = 0; }), HasSubstr("kernel size"));
  EXPECT_THAT(with([](ConvnetConfig& c) { c.kernel = -3; }), HasSubstr("kernel size"));
  EXPECT_THAT(with([](ConvnetConfig& c) { c.kernel = 5000; }), HasSubstr("at most 1024"));
  EXPECT_THAT(with([](ConvnetConfig& c) { c.filters = {}; }), HasSubstr("convolutions"));
  EXPECT_THAT(with([](ConvnetConfig& c) { c.filters = {4, -1}; }), HasSubstr("channels"));
  EXPECT_EQ(with([](ConvnetConfig& c) { c.widths.clear(); }), "no error");
}

}  // namespace
}  // namespace tutti::training
