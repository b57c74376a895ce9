// Tests mixes of layers on this host. The messages on which costs are based must equal those that
// ranks send.
#include "training/planner/local/mix_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"
#include "training/core/random.h"
#include "training/parallel/mesh.h"
#include "training/planner/local/unit_profiles.h"
#include "training/setup/session.h"
#include "training/setup/settle.h"

namespace tutti::training::planner {
namespace {

using ::testing::HasSubstr;
using tutti::testing::run_ranks;
using Words = std::vector<std::string>;

constexpr int64_t kSize = 4;

class Noise : public DataSet {
 public:
  uint64_t size() const override { return 100; }
  uint64_t validation_size() const override { return 8; }
  void add(uint64_t example, uint64_t, Batch& batch) const override {
    for (uint64_t i = 0; i < kSize * kSize; ++i) {
      batch.features.push_back(scale_symmetric(random_bits(1, example, i), 1.0f));
    }
    batch.targets.push_back(static_cast<int32_t>(example % 3));
    ++batch.samples;
  }
  void add_validation(uint64_t example, Batch& batch) const override { add(example, 0, batch); }
  uint64_t fingerprint() const override { return 1; }
};

const Words kPerceptron = {"--model=perceptron", "--widths=9", "--widths=6"};
const Words kConvnet = {"--model=convnet", "--filters=3", "--filters=5",
                        "--strides=1",     "--strides=1", "--widths=6"};

RunOptions run_with(const Words& model, const Words& more = {}) {
  Words words = {"--data=none",     "--tp=2",      "--batch=14",
                 "--micro-batch=7", "--workers=0", "--steps=1"};
  words.insert(words.end(), model.begin(), model.end());
  words.insert(words.end(), more.begin(), more.end());
  RunOptions run = parse_run_options(words);
  for (const auto& [name, size] :
       {std::pair("channels", 1), {"height", 4}, {"width", 4}, {"classes", 3}}) {
    run.model[name] = size;
  }
  return run;
}

double sent_of(const pipeline::Profile& profile, size_t unit) {
  double bytes = 0;
  for (const UnsentMessage& one : profile.messages[unit].forward) bytes += one.bytes;
  for (const UnsentMessage& one : profile.messages[unit].backward) bytes += one.bytes;
  return bytes;
}

// The planned halos are those of the first rank, which has one neighbour. Other conversions are the
// same on all ranks.
void expect_planned_messages(const Words& model, const Mix& mix) {
  SCOPED_TRACE(to_text(mix));
  RunOptions run = with_mix(run_with(model), mix);
  settle(run, 2, 100);
  const UnitProfiles profiles(2, 1);
  const pipeline::Profile profile = profiles.measured(run, mesh_place(run.mesh, 2), 7, /*runs=*/1);
  double planned = 0;
  for (size_t unit = 0; unit < mix.size(); ++unit) planned += 2 * sent_of(profile, unit);
  run_ranks(2, [&](const tutti::Job& job) {
    auto data = std::make_shared<LoadedData>();
    data->sets.push_back(std::make_unique<Noise>());
    Session session(Communicator::init(job), with_mix(run_with(model), mix), std::move(data));
    const auto step = session.trainer().next();
    const double sent = step->bytes_by_axis[static_cast<size_t>(Axis::tensor)];
    if (job.rank == 0) {
      EXPECT_NEAR(planned, sent, 1e-9 * sent);
    }
    session.trainer().finish();
  });
}

TEST(MixSearch, PredictedTrafficOfLayersEqualsTheMeasured) {
  for (const Mix& mix : all_mixes(3)) expect_planned_messages(kPerceptron, mix);
  for (const Mix& mix : all_mixes(4, 2)) expect_planned_messages(kConvnet, mix);
}

TEST(MixSearch, HasCostsOfEachMix) {
  const MixCosts costs = measured_mix_costs(run_with(kPerceptron), 2);
  ASSERT_EQ(costs.layers(), 3u);
  for (size_t layer = 0; layer < 3; ++layer) {
    for (const LayerSplit before : {LayerSplit::batch, LayerSplit::model}) {
      for (const LayerSplit own : {LayerSplit::batch, LayerSplit::model}) {
        EXPECT_GT(costs.at(layer, before, own), 0);
        EXPECT_LT(costs.at(layer, before, own), 10);
      }
    }
  }
  EXPECT_EQ(costs.cheapest().size(), 3u);
  // Three classes cannot be divided over four ranks.
  const MixCosts narrow = measured_mix_costs(run_with(kPerceptron, {"--tp=4"}), 4);
  EXPECT_TRUE(std::isinf(narrow.at(2, LayerSplit::batch, LayerSplit::model)));
  EXPECT_EQ(narrow.cheapest().back(), LayerSplit::batch);
}

TEST(MixSearch, ConvolutionsMayBeDomainParallel) {
  const MixCosts costs = measured_mix_costs(run_with(kConvnet), 2);
  ASSERT_EQ(costs.layers(), 4u);
  for (size_t layer = 0; layer < 4; ++layer) {
    for (const LayerSplit own : kAllLayerSplits) {
      for (const LayerSplit before : kAllLayerSplits) {
        const bool before_can = before != LayerSplit::domain || layer <= 2;
        const bool can = own != LayerSplit::domain || layer < 2;
        EXPECT_EQ(std::isfinite(costs.at(layer, before, own)), before_can && can)
            << layer << ' ' << to_text({before, own});
      }
    }
  }
  EXPECT_EQ(costs.cheapest().size(), 4u);
}

TEST(MixSearch, RefusesModelsWithoutMixes) {
  const auto error_of = [](const RunOptions& run) -> std::string {
    try {
      measured_mix_costs(run, 2);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(run_with(kPerceptron, {"--tp=1"})),
              HasSubstr("no effect with one tensor-parallel rank"));
  EXPECT_THAT(error_of(parse_run_options({"--data=none", "--model=gpt2", "--tp=2"})),
              HasSubstr("--mix does not support the model gpt2"));
}

}  // namespace
}  // namespace tutti::training::planner
