#include "training/modules/self_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/training/support/gradient_check.h"

namespace tutti::training::testing {
namespace {

Tensor forward(const SelfAttention& attention, Pass& pass, ConstTensor x,
               SelfAttention::Saved& saved) {
  const Tensor qkv = attention.take(pass, x.dtype, x.rows, saved);
  attention.project(pass, x, saved, qkv);
  attention.attend(pass, saved);
  const Tensor output = pass.arena.take(x.dtype, x.rows, x.cols);
  attention.finish(pass, saved, output);
  return output;
}

void check(const SelfAttentionOptions& options, int64_t context, int64_t samples,
           const GradientCheck& limits) {
  SCOPED_TRACE(::testing::Message()
               << "context " << context << ", " << options.heads << " heads, width "
               << options.width << (options.rope ? ", rope" : ""));
  ParameterTable table;
  const SelfAttention attention(table, "a", options);
  ASSERT_EQ(table.size(),
            std::ssize(options.in) + 1 + (options.bias ? std::ssize(options.in) + 1 : 0));
  TestPass test;
  test.batch.samples = samples;
  SelfAttention::Saved saved;
  const HostTensor x = random_tensor(DType::f64, samples * context, options.width, 3);
  expect_gradients(
      {[&](Pass& pass, ConstTensor input) { return forward(attention, pass, input, saved); },
       [&](Pass& pass, ConstTensor dy) { return attention.backward(pass, dy, saved); }},
      table, test, x, limits);
}

TEST(SelfAttentionTest, Gradients) {
  for (const int64_t context : {1, 3, 13}) {
    for (const int64_t heads : {1, 3}) {
      for (const bool rope : {false, true}) {
        for (const bool bias : {false, true}) {
          check({.width = 6,
                 .heads = heads,
                 .bias = bias,
                 .rope = rope ? std::make_shared<Rope>(context, 6 / heads) : nullptr},
                context, 2, {});
        }
      }
    }
  }
}

// Key heads that serve one, two or four query heads. The heads have their own size, and the layers
// are separate.
TEST(SelfAttentionTest, GradientsOfGroupedQueries) {
  for (const int64_t key_heads : {1, 2, 4}) {
    for (const bool bias : {false, true}) {
      SelfAttentionOptions options{.width = 6,
                                   .heads = 4,
                                   .key_heads = key_heads,
                                   .head_size = 2,
                                   .bias = bias,
                                   .rope = std::make_shared<Rope>(131, 2)};
      check(options, 5, 2, {});
      options.in = {"q", "k", "v"};
      check(options, 5, 2, {});
      check(options, 131, 1, {.every = 47});
    }
  }
}

// The size of the heads is odd.
TEST(SelfAttentionTest, GradientsOfOddHeads) {
  check({.width = 5, .heads = 1}, 4, 3, {});
  check({.width = 9, .heads = 3}, 4, 1, {});
  check({.width = 3, .heads = 3}, 4, 1, {});
}

// Contexts of one, two and three blocks, which have 128 rows each.
TEST(SelfAttentionTest, GradientsOverSeveralBlocks) {
  for (const int64_t context : {128, 129, 257}) {
    check({.width = 6, .heads = 3, .rope = std::make_shared<Rope>(context, 2)}, context, 1,
          {.every = 23});
  }
  check({.width = 4, .heads = 1}, 257, 2, {.every = 61});
}

// The tolerance for 16-bit types includes the rounding of probabilities and of each layer's result.
TEST(SelfAttentionTest, SmallTypesAreCloseToTheWideOne) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const double tolerance = type == DType::f32 ? 5e-6 : type == DType::bf16 ? 0.03 : 0.004;
    const SelfAttentionOptions options{
        .width = 24, .heads = 3, .rope = std::make_shared<Rope>(150, 8)};
    ParameterTable table, wide_table;
    const SelfAttention attention(table, "a", options), wide(wide_table, "a", options);
    const BoundParameters parameters(table, type, 0.3);
    BoundParameters wide_parameters(wide_table, DType::f64);
    wide_parameters.copy_values(parameters);
    TestPass test;
    test.batch.samples = 2;
    SelfAttention::Saved saved, wide_saved;
    const HostTensor x = random_tensor(type, 300, 24, 3), dy = random_tensor(type, 300, 24, 4);
    const HostTensor wide_x = rounded_to(DType::f64, x), wide_dy = rounded_to(DType::f64, dy);
    EXPECT_LT(relative_distance(forward(attention, test.pass, x, saved),
                                forward(wide, test.pass, wide_x, wide_saved)),
              tolerance)
        << name(type);
    EXPECT_LT(relative_distance(attention.backward(test.pass, dy, saved),
                                wide.backward(test.pass, wide_dy, wide_saved)),
              tolerance)
        << name(type);
    for (int i = 0; i < parameters.size(); ++i) {
      EXPECT_LT(relative_distance(parameters.gradient(i), wide_parameters.gradient(i)), tolerance)
          << name(type) << " " << table.specs()[static_cast<size_t>(i)].name;
    }
  }
}

TEST(SelfAttentionTest, RefusesHeadsThatDoNotDivideTheWidth) {
  ParameterTable table;
  for (const int64_t heads : {0, -1, 4}) {
    EXPECT_THROW(SelfAttention(table, "a", {.width = 6, .heads = heads}), Error);
  }
  for (const int64_t key_heads : {-1, 2, 6}) {
    EXPECT_THROW(SelfAttention(table, "a", {.width = 6, .heads = 3, .key_heads = key_heads}),
                 Error);
  }
  EXPECT_EQ(table.size(), 0);
}

}  // namespace
}  // namespace tutti::training::testing
