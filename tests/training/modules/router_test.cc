#include "training/modules/router.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/training/support/bound_parameters.h"

namespace tutti::training::testing {
namespace {

// A router for 8 experts. The 8 values of a token are its logits.
struct Rig {
  explicit Rig(const RouterOptions& options, int64_t context = 4)
      : load(std::make_shared<ExpertLoad>(1, 8, false, options.bias_rate)),
        router(table, "mlp", options, 8, context, 0, load),
        parameters(table, DType::f32) {
    std::vector<double> identity(64);
    for (size_t i = 0; i < 64; i += 9) identity[i] = 1;
    assign(parameters.value(0), identity);
    test.batch.samples = 1;
  }

  void route(const std::vector<double>& logits) {
    const auto tokens = static_cast<int64_t>(logits.size() / 8);
    zeros.assign(static_cast<size_t>(tokens), 0);
    test.batch.tokens = zeros;
    const Tensor input = test.arena.take(DType::f32, tokens, 8);
    assign(input, logits);
    router.take(test.pass, tokens, saved);
    router.forward(test.pass, input, saved);
  }

  ParameterTable table;
  std::shared_ptr<ExpertLoad> load;
  Router router;
  BoundParameters parameters;
  TestPass test{DType::f32};
  Router::Saved saved;
  std::vector<int32_t> zeros;
};

// Expected values are those of DeepseekV3TopkRouter in transformers 5.24. Even with a bias below
// all scores, no expert outside the best groups is chosen.
TEST(RouterTest, ChoosesAsDeepSeekV3Does) {
  Rig rig({.experts = 8,
           .topk = 3,
           .scores = ExpertScores::sigmoid,
           .weight_scale = 2.5,
           .groups = 4,
           .topk_groups = 2,
           .bias_rate = 1e-3});
  const std::vector<float> bias = {-1.2220767736f, -1.2552967072f, -1.3514432907f, -1.5492950678f,
                                   -1.7033886909f, -1.8177322149f, -1.2756910324f, -1.4283248186f};
  std::ranges::copy(bias, rig.load->bias(0).begin());
  rig.route({-0.0766442940, 0.3598815203,  -0.7820168138, 0.0715277344,  0.6648393869,
             -0.2867802978, 1.6205507517,  -1.5967080593, -0.0516809635, -0.3059757054,
             0.2485017478,  -0.2225608379, 0.9131519198,  0.2043411136,  0.5739846826,
             0.4163312912,  0.2615011632,  0.9311244488,  -0.5144619942, -1.6516654491,
             1.0460227728,  0.5221869946,  -0.1668091565, 0.0530334003,  0.5637630224,
             2.2565572262,  1.8692600727,  -1.1952342987, 0.9979225205,  0.4591804445,
             2.4363970757,  -0.1468081772});
  EXPECT_EQ(rig.saved.experts, (std::vector<int32_t>{6, 1, 0, 6, 0, 7, 1, 0, 6, 1, 6, 0}));
  const std::vector<double> weights = {1.0957859755, 0.7730904222, 0.6311234832, 0.9247329235,
                                       0.7041331530, 0.8711338043, 1.0301921367, 0.8114615083,
                                       0.6583464146, 0.9191495180, 0.9337166548, 0.6471336484};
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_NEAR(rig.saved.weights[i], weights[i], 1e-6) << i;
  }
}

TEST(RouterTest, ChoosesTheFirstOfEquals) {
  Rig rig({.experts = 8, .topk = 2});
  rig.route(std::vector<double>(8, 0.5));
  EXPECT_EQ(rig.saved.experts, (std::vector<int32_t>{0, 1}));
  EXPECT_NEAR(rig.saved.weights[0], 0.5, 1e-7);
}

// Four tokens of one sample prefer expert 2, whose capacity is two choices.
TEST(RouterTest, DropsWhatAFullExpertCannotTake) {
  std::vector<double> logits(32);
  for (size_t token = 0; token < 4; ++token) {
    logits[8 * token + 2] = 1 + static_cast<double>(token);
  }
  for (const FullExpert full : {FullExpert::by_position, FullExpert::by_score}) {
    Rig rig({.experts = 8, .topk = 1, .renormalize = false, .capacity = 4, .full = full});
    rig.load->begin_step();
    rig.route(logits);
    const bool first = full == FullExpert::by_position;
    EXPECT_EQ(rig.saved.experts,
              first ? (std::vector<int32_t>{2, 2, -1, -1}) : (std::vector<int32_t>{-1, -1, 2, 2}));
    EXPECT_EQ(rig.saved.choices, (std::vector<int32_t>{2, 2, 2, 2}));
    EXPECT_EQ(rig.load->of(0, 2), 4) << "dropped ones count";
    EXPECT_EQ(rig.load->dropped(), 2);
  }
}

}  // namespace
}  // namespace tutti::training::testing
