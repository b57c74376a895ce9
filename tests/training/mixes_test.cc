// Tests layers that are batch- or model-parallel over the same ranks: any mix trains the same
// model, and the bytes sent agree with the formulas. convnet_mixes_test.cc tests domain-parallel
// layers too.
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
#include "training/models/perceptron.h"
#include "training/planner/mix_costs.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::TinyRun;

// Only one of the layers' widths and the number of classes is divisible by 2, 3 or 4 ranks.
PerceptronConfig uneven(const Mix& mix = {}) {
  return {.height = 3, .width = 5, .classes = 5, .widths = {7, 10}, .compute = {.mix = mix}};
}

// --- gradients, in float64 ---

void check_gradients(int ranks, const Mix& mix, int64_t samples, bool recomputes) {
  SCOPED_TRACE(cat(ranks, " ranks, ", to_text(mix), ", ", samples, " samples",
                   recomputes ? ", recomputed" : ""));
  testing::check_divided_gradients(
      ranks,
      [&](const MeshPlace& place) { return std::make_unique<Perceptron>(uneven(mix), place); },
      testing::random_images(uneven().inputs(), uneven().classes, samples), recomputes);
}

TEST(Mixes, AllHaveTheGradientsOfTheUndividedModel) {
  for (const Mix& mix : all_mixes(3)) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int64_t samples : {1, 2, 9}) check_gradients(ranks, mix, samples, false);
    }
  }
}

TEST(Mixes, RecomputesMixes) {
  for (const Mix& mix : all_mixes(3)) check_gradients(3, mix, 7, true);
}

// --- training ---

TinyRun run_of(const Mix& mix, int tensor = 1, int data = 1, int zero = 0) {
  return testing::mixed_run(
      [mix](const MeshPlace& place) { return std::make_unique<Perceptron>(uneven(mix), place); },
      ResNetConfig{.height = 3, .width = 5, .classes = 5}, tensor, data, zero);
}

// In deterministic mode, sums over ranks have the same bits in all ZeRO stages.
TEST(Mixes, TrainTheSameModelBesideDataRanksInEveryStageOfZero) {
  const testing::Deterministic deterministic;
  const Outcome alone = testing::train(1, run_of({}));
  for (const Mix& mix : all_mixes(3)) {
    for (const auto& [tensor, data] : {std::pair(2, 1), {3, 1}, {4, 1}, {2, 2}, {3, 2}}) {
      std::optional<Outcome> first;
      for (int zero = 0; zero <= 3; ++zero) {
        SCOPED_TRACE(cat(to_text(mix), ": tensor ", tensor, " x data ", data, ", ZeRO ", zero));
        const Outcome found = testing::train(tensor * data, run_of(mix, tensor, data, zero));
        if (!first) first = found;
        EXPECT_EQ(testing::difference(found, *first), "");
        EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-6);
        EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-5);
        EXPECT_EQ(found.correct, alone.correct);
        EXPECT_NEAR(found.validation, alone.validation, 1e-6 * alone.validation);
      }
    }
  }
}

// In deterministic mode, a model with slices is computed in blocks, which do not depend on the mix.
TEST(Mixes, HaveTheSameBitsInDeterministicMode) {
  const testing::Deterministic deterministic;
  const auto sliced = [](const Mix& mix, int tensor, int data, int zero, DType dtype) {
    TinyRun run = run_of(mix, tensor, data, zero);
    run.other_model = [mix](const MeshPlace& place) {
      PerceptronConfig config = uneven(mix);
      config.compute.slices = 8;
      return std::make_unique<Perceptron>(config, place);
    };
    run.replica.storage.dtype = dtype;
    return run;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int data : {1, 2}) {
      const Outcome alone = testing::train(data, sliced({}, 1, data, 0, dtype));
      int zero = 0;
      for (const Mix& mix : all_mixes(3)) {
        for (const int tensor : {2, 4}) {
          zero = (zero + 1) % 4;
          SCOPED_TRACE(cat(to_text(mix), ": tensor ", tensor, " x data ", data, ", ZeRO ", zero));
          const TinyRun run = sliced(mix, tensor, data, zero, dtype);
          EXPECT_EQ(testing::difference(testing::train(tensor * data, run), alone), "");
        }
      }
    }
  }
}

TEST(Mixes, HaveTheSameBitsOnThreeRanksInDeterministicMode) {
  const testing::Deterministic deterministic;
  const auto sliced = [](const Mix& mix, int tensor) {
    TinyRun run = run_of(mix, tensor);
    run.other_model = [mix](const MeshPlace& place) {
      PerceptronConfig config = uneven(mix);
      config.compute.slices = 24;
      return std::make_unique<Perceptron>(config, place);
    };
    return run;
  };
  const Outcome alone = testing::train(1, sliced({}, 1));
  for (const Mix& mix : all_mixes(3)) {
    EXPECT_EQ(testing::difference(testing::train(3, sliced(mix, 3)), alone), "") << to_text(mix);
  }
}

TEST(Mixes, TrainInHalfPrecision) {
  const auto half = [](const Mix& mix, int tensor) {
    TinyRun run = run_of(mix, tensor);
    run.replica.storage.dtype = DType::bf16;
    return run;
  };
  const Outcome alone = testing::train(1, half({}, 1));
  for (const Mix& mix : all_mixes(3)) {
    const Outcome found = testing::train(2, half(mix, 2));
    EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 0.02) << to_text(mix);
  }
}

// --- checkpoints ---

class MixedCheckpoints : public FolderTest {};

TEST_F(MixedCheckpoints, ResumeUnderEveryOtherMix) {
  const std::vector<Mix> mixes = all_mixes(3);
  for (size_t from = 0; from < mixes.size(); from += 3) {
    const std::string saved = path(cat("saved-", from));
    const std::vector<double> expected = testing::losses_behind_save(run_of(mixes[from], 2), saved);
    for (size_t to = 0; to < mixes.size(); ++to) {
      SCOPED_TRACE(cat("from ", to_text(mixes[from]), " to ", to_text(mixes[to])));
      const int ranks = to % 2 == 0 ? 2 : 3;
      testing::expect_goes_on(run_of(mixes[to], ranks, 1, static_cast<int>(to % 4)), ranks, saved,
                              expected);
    }
  }
}

// --- bytes sent ---

// All sizes are multiples of the padding of buckets.
constexpr int64_t kClasses = 32;
PerceptronConfig even(const Mix& mix) {
  return {.height = 8,
          .width = 8,
          .classes = kClasses,
          .widths = {96, 32, 64, 128},
          .compute = {.mix = mix}};
}
const std::vector<int64_t> kWidths = {64, 96, 32, 64, 128, kClasses};

std::pair<double, double> sent_by(const Mix& mix, int ranks, int64_t samples) {
  return testing::sent_by(
      [&](const MeshPlace& place) { return std::make_unique<Perceptron>(even(mix), place); },
      ResNetConfig{.height = 8, .width = 8, .classes = kClasses}, ranks, samples);
}

TEST(Mixes, SendTheBytesOfTheFormulas) {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t samples : {8, 11}) {
      SCOPED_TRACE(cat(ranks, " ranks, ", samples, " samples"));
      const auto [units, sums] = sent_by(Mix(5, LayerSplit::model), ranks, samples);
      EXPECT_DOUBLE_EQ(units,
                       planner::model_parallel_bytes(kWidths, samples, ranks, sizeof(float)));
      EXPECT_EQ(sums, 0);
      const auto [loss, gradients] = sent_by(Mix(5, LayerSplit::batch), ranks, samples);
      double biases = 0;
      for (size_t layer = 1; layer < kWidths.size(); ++layer) {
        biases += static_cast<double>(kWidths[layer]);
      }
      const double part = static_cast<double>(ranks - 1) / ranks;
      EXPECT_NEAR(gradients,
                  planner::batch_parallel_bytes(kWidths, ranks, sizeof(float)) +
                      2 * part * biases * sizeof(float),
                  1e-6);
      // The loss and the number of correct answers are summed over ranks.
      EXPECT_NEAR(loss, 2 * part * 2 * sizeof(double), 1e-9);
    }
  }
}

// --- refused mixes ---

std::string refusal(const PerceptronConfig& config, int ranks) {
  return error_of([&] { Perceptron(config, MeshPlace{.sizes = {ranks, 1, 1, 1, 1, 1}}); });
}

TEST(Mixes, NeedALetterForEachLayer) {
  EXPECT_THAT(refusal(uneven({LayerSplit::batch, LayerSplit::model}), 2),
              AllOf(HasSubstr("the mix has 2 layers, but the model has 3"), HasSubstr("--mix b,m"),
                    HasSubstr("use 3 letters")));
  EXPECT_LT(refusal(uneven(Mix(9999, LayerSplit::batch)), 2).size(), 300u);
}

TEST(Mixes, DivideNoLayerThatIsNarrowerThanTheRanks) {
  const auto of = [](LayerSplit last) {
    return refusal(uneven({LayerSplit::model, LayerSplit::model, last}), 6);
  };
  EXPECT_THAT(of(LayerSplit::model),
              AllOf(HasSubstr("the 5 outputs of layer 2 cannot be divided over 6 ranks"),
                    HasSubstr("use b for this layer")));
  EXPECT_EQ(of(LayerSplit::batch), "no error");
  check_gradients(6, {LayerSplit::model, LayerSplit::model, LayerSplit::batch}, 3, false);
}

TEST(Mixes, SizesMakeSense) {
  const auto with = [](auto change) {
    PerceptronConfig config = uneven();
    change(config);
    return refusal(config, 1);
  };
  EXPECT_THAT(with([](PerceptronConfig& c) {
                c.widths = {3, 0};
              }),
              HasSubstr("width of a layer cannot be 0"));
  EXPECT_THAT(with([](PerceptronConfig& c) { c.classes = -1; }), HasSubstr("classes"));
  EXPECT_THAT(with([](PerceptronConfig& c) { c.widths.resize(20000, 1); }),
              HasSubstr("the model has 20001 layers"));
  EXPECT_EQ(with([](PerceptronConfig& c) { c.widths.clear(); }), "no error");
}

}  // namespace
}  // namespace tutti::training
