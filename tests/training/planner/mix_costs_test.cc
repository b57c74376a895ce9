#include "training/planner/mix_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tutti::training::planner {
namespace {

constexpr auto kBatch = LayerSplit::batch, kModel = LayerSplit::model;

TEST(MixCostsTest, TheCheapestIsTheBestOfAllMixes) {
  std::mt19937 chance(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (size_t turn = 0; turn < 200; ++turn) {
    const size_t layers = 1 + turn % 7, convolutions = turn % 4;
    MixCosts costs(layers);
    for (size_t layer = 0; layer < layers; ++layer) {
      for (const LayerSplit own : kAllLayerSplits) {
        if (own == LayerSplit::domain && layer >= convolutions) continue;  // the cost is infinite
        for (const LayerSplit before : kAllLayerSplits) {
          costs.at(layer, before, own) =
              layer > 0 || before == kBatch ? uniform(chance) : costs.at(0, kBatch, own);
        }
      }
    }
    double least = 1e9;
    for (const Mix& mix : all_mixes(layers, convolutions)) {
      least = std::min(least, costs.seconds_of(mix));
    }
    EXPECT_DOUBLE_EQ(costs.seconds_of(costs.cheapest()), least);
  }
}

TEST(MixCostsTest, OneConversionMayPayForTheLayersAfterIt) {
  MixCosts costs(3);
  for (size_t layer = 0; layer < 3; ++layer) {
    for (const LayerSplit before : {kBatch, kModel}) {
      costs.at(layer, before, kBatch) = before == kModel && layer > 0 ? 5 : 2;
      costs.at(layer, before, kModel) = before == kBatch && layer > 0 ? 4 : 1;
    }
  }
  costs.at(0, kBatch, kModel) = costs.at(0, kModel, kModel) = 9;
  EXPECT_EQ(costs.cheapest(), (Mix{kBatch, kBatch, kBatch}));
  EXPECT_EQ(costs.seconds_of({kBatch, kModel, kModel}), 7);
  costs.at(2, kModel, kModel) = -1;
  EXPECT_EQ(costs.cheapest(), (Mix{kBatch, kModel, kModel}));
  EXPECT_EQ(MixCosts(0).cheapest(), Mix());
}

TEST(MixCostsTest, FormulasOfBytes) {
  // Model-parallel layers on 3 ranks with 10 samples and layers of 2, 5 and 7 values of 4 bytes:
  // 2/3 * 40 * (5 + 7 + 2 * 5).
  EXPECT_DOUBLE_EQ(model_parallel_bytes(std::vector<int64_t>{2, 5, 7}, 10, 3, 4),
                   2.0 / 3 * 40 * 22);
  EXPECT_DOUBLE_EQ(batch_parallel_bytes(std::vector<int64_t>{2, 5, 7}, 3, 4),
                   2 * 2.0 / 3 * 4 * (10 + 35));
  EXPECT_EQ(model_parallel_bytes(std::vector<int64_t>{2, 5, 7}, 10, 1, 4), 0);
  EXPECT_EQ(batch_parallel_bytes(std::vector<int64_t>{2}, 3, 4), 0);
}

}  // namespace
}  // namespace tutti::training::planner
