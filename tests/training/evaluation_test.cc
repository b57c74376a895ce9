// Tests the evaluation of the loss over a whole text.
#include "training/language/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "training/data/token_file.h"
#include "training/models/registry.h"
#include "training/pipeline/runner.h"

namespace tutti::training {
namespace {

using testing::BoundParameters;

struct Rig {
  explicit Rig(size_t size, int64_t context = 8)
      : model(make_model({{"kind", "llama"},
                          {"layers", 1},
                          {"heads", 2},
                          {"width", 8},
                          {"context", context},
                          {"max_context", 16},
                          {"vocabulary", 20}})),
        parameters(model->parameters(), DType::f32) {
    for (size_t i = 0; i < size; ++i) tokens.push_back(static_cast<int32_t>(i * i % 19));
  }

  TextLoss loss(int rank = 0, int ranks = 1) {
    const TokenReader reader{tokens.size(), [this](uint64_t first, std::span<int32_t> out) {
                               std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(first),
                                           out.size(), out.begin());
                             }};
    return evaluate_text(dynamic_cast<Decoder&>(*model), DType::f32, reader, rank, ranks);
  }

  // Returns the loss of the tokens [first, first + count), each predicted from the earlier tokens
  // of its window.
  double window(size_t first, size_t count) {
    ModelRunner runner(*model, {});
    UnitHooks hooks;
    const std::span<const int32_t> all = tokens;
    return runner
        .evaluate({.samples = 1,
                   .tokens = all.subspan(first, count),
                   .targets = all.subspan(first + 1, count)},
                  hooks)
        .loss_sum;
  }

  std::unique_ptr<Model> model;
  BoundParameters parameters;
  std::vector<int32_t> tokens;
};

TEST(EvaluationTest, EachTokenButTheFirstIsPredictedOnce) {
  Rig rig(22);
  const TextLoss loss = rig.loss();
  EXPECT_EQ(loss.targets, 21);
  EXPECT_NEAR(loss.sum, rig.window(0, 8) + rig.window(8, 8) + rig.window(16, 5), 1e-5);
  for (const size_t size : {size_t{0}, size_t{1}}) EXPECT_EQ(Rig(size).loss().targets, 0);
  EXPECT_EQ(Rig(2).loss().targets, 1);
  EXPECT_EQ(Rig(9).loss().targets, 8);
}

TEST(EvaluationTest, ShorterContextsHaveOtherWindows) {
  Rig rig(22, 5);
  EXPECT_NEAR(rig.loss().sum,
              rig.window(0, 5) + rig.window(5, 5) + rig.window(10, 5) + rig.window(15, 5) +
                  rig.window(20, 1),
              1e-5);
}

TEST(EvaluationTest, RanksShareTheWindows) {
  Rig rig(1003);
  const TextLoss whole = rig.loss();
  EXPECT_EQ(whole.targets, 1002);
  for (const int ranks : {2, 3, 200}) {
    TextLoss sum;
    for (int rank = 0; rank < ranks; ++rank) {
      const TextLoss part = rig.loss(rank, ranks);
      sum.sum += part.sum;
      sum.targets += part.targets;
      sum.correct += part.correct;
    }
    EXPECT_NEAR(sum.sum, whole.sum, 1e-6 * whole.sum) << ranks;
    EXPECT_EQ(sum.targets, whole.targets);
    EXPECT_EQ(sum.correct, whole.correct);
  }
}

TEST(EvaluationTest, MarkedTokensAreSeenButNotPredicted) {
  Rig rig(17);
  const TextLoss all = rig.loss();
  rig.tokens[3] = unpredicted(rig.tokens[3]);
  rig.tokens[16] = unpredicted(rig.tokens[16]);
  const TextLoss some = rig.loss();
  EXPECT_EQ(some.targets, all.targets - 2);
  EXPECT_LT(some.sum, all.sum);
}

}  // namespace
}  // namespace tutti::training
