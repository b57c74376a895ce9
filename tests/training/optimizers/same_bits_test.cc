// Tests that every optimizer gives the same bits for any division of the parameters among owners
// and buckets.
#include <gtest/gtest.h>

#include <string>

#include "tests/training/optimizers/owners.h"
#include "training/optimizers/adamw.h"
#include "training/optimizers/adamw8bit.h"
#include "training/optimizers/lamb.h"
#include "training/optimizers/lars.h"
#include "training/optimizers/sgd.h"

namespace tutti::training {
namespace {

struct Named {
  std::string name;
  std::function<std::unique_ptr<Optimizer>()> make;
};

class SameBitsTest : public testing::TestWithParam<Named> {
 protected:
  void expect_same(Training training) {
    training.specs = example_specs();
    training.make_optimizer = GetParam().make;
    const std::vector<uint32_t> expected = train(training, {.ranks = {1}});
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (const int64_t bucket : {1, 700, 3000, 1 << 20}) {
        const LayoutOptions layout{
            .ranks = {ranks}, .bucket_elements = bucket, .first_bucket_elements = bucket};
        ASSERT_EQ(train(training, layout), expected)
            << ranks << " ranks, buckets of " << bucket << " elements";
      }
    }
  }
};

TEST_P(SameBitsTest, MastersAloneKeepTheBits) { expect_same({}); }
TEST_P(SameBitsTest, ValuesInBf16KeepTheBits) {
  expect_same({.gradients = DType::bf16, .values = DType::bf16});
}
TEST_P(SameBitsTest, ValuesInF16KeepTheBits) {
  expect_same({.gradients = DType::f16, .values = DType::f16});
}
TEST_P(SameBitsTest, StochasticRoundingKeepsTheBits) {
  expect_same({.gradients = DType::f32, .values = DType::bf16, .stochastic_rounding = true});
}
TEST_P(SameBitsTest, WithoutMasters) {
  expect_same({.gradients = DType::bf16,
               .masters = false,
               .values = DType::bf16,
               .stochastic_rounding = true});
}
TEST_P(SameBitsTest, WithoutMastersInF32) { expect_same({.masters = false}); }

// The tests above would also pass if optimizers did not update anything.
TEST_P(SameBitsTest, EveryStepChangesTheModel) {
  Training training{.specs = example_specs(), .make_optimizer = GetParam().make, .steps = 2};
  const std::vector<uint32_t> before = train(training, {});
  training.steps = 3;
  const std::vector<uint32_t> after = train(training, {});
  const size_t words = 2 + GetParam().make()->state_names().size();
  size_t changed = 0;
  for (size_t i = 0; i < before.size(); i += words) changed += before[i] != after[i];
  EXPECT_GT(changed, before.size() / words * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, SameBitsTest,
    testing::Values(
        Named{"sgd", [] { return std::make_unique<Sgd>(SgdOptions{.weight_decay = 0.1}); }},
        Named{"plain_sgd", [] { return std::make_unique<Sgd>(SgdOptions{.momentum = 0}); }},
        Named{"nesterov", [] { return std::make_unique<Sgd>(SgdOptions{.nesterov = true}); }},
        Named{"adamw", [] { return std::make_unique<AdamW>(); }},
        Named{"adamw8bit", [] { return std::make_unique<AdamW8Bit>(); }},
        Named{"lamb", [] { return std::make_unique<Lamb>(); }},
        Named{"lars", [] { return std::make_unique<Lars>(LarsOptions{.trust_coefficient = 1}); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::training
