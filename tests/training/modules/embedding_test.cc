#include "training/modules/embedding.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/training/support/gradient_check.h"

namespace tutti::training::testing {
namespace {

TEST(EmbeddingTest, LooksRowsUp) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    ParameterTable table;
    const Embedding embedding(table, "e", 5, 3, 0.02);
    const BoundParameters parameters(table, type);
    Embedding::Saved saved;
    const std::array tokens = {4, 0, 4, 2};
    const HostTensor output(type, 4, 3);
    embedding.forward(tokens, output, saved);
    for (int64_t row = 0; row < 4; ++row) {
      EXPECT_TRUE(same_bits(output.view().row_range(row, 1),
                            parameters.value(0).row_range(tokens[static_cast<size_t>(row)], 1)));
    }
  }
}

TEST(EmbeddingTest, Gradients) {
  const std::vector<std::vector<int32_t>> batches = {
      {0}, {6, 6, 6}, {3, 1, 3, 0, 6, 1, 3}, {6, 5, 4, 3, 2, 1, 0}};
  for (const int64_t width : {1, 7, 33}) {
    for (const std::vector<int32_t>& tokens : batches) {
      ParameterTable table;
      const Embedding embedding(table, "e", 7, width, 0.02);
      TestPass test;
      Embedding::Saved saved;
      const auto forward = [&](Pass& pass, ConstTensor) {
        const Tensor output = pass.arena.take(pass.dtype, std::ssize(tokens), width);
        embedding.forward(tokens, output, saved);
        return output;
      };
      const auto backward = [&](Pass& pass, ConstTensor dy) {
        saved.output_gradient = dy;
        embedding.backward_weight(pass, saved);
        return Tensor{};
      };
      expect_gradients({forward, backward}, table, test, {});
    }
  }
}

// Adds ones. A sum in bf16 would stop at 256.
TEST(EmbeddingTest, RepeatedTokensAreAccumulatedInFloat) {
  ParameterTable table;
  const Embedding embedding(table, "e", 2, 1, 0.02);
  const BoundParameters parameters(table, DType::bf16, 0.5, /*one_pass=*/true);
  TestPass test(DType::bf16);
  const std::vector<int32_t> tokens(1024, 1);
  const HostTensor dy(DType::bf16, 1024, 1);
  assign(dy, std::vector<double>(1024, 1));
  embedding.backward_weight(test.pass, {tokens, dy});
  EXPECT_EQ(doubles(parameters.gradient(0)), (std::vector<double>{0, 1024}));
}

TEST(EmbeddingTest, RefusesUnknownTokens) {
  ParameterTable table;
  const Embedding embedding(table, "e", 5, 3, 0.02);
  const BoundParameters parameters(table, DType::f32);
  Embedding::Saved saved;
  const HostTensor output(DType::f32, 1, 3);
  for (const int32_t token : {-1, 5}) {
    try {
      embedding.forward(std::array{token}, output, saved);
      FAIL() << token;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
}

// Weights are copied without conversion, so that memory of another type would be misinterpreted.
TEST(EmbeddingTest, RefusesAnotherTypeThanTheWeights) {
  ParameterTable table;
  const Embedding embedding(table, "e", 5, 3, 0.02);
  const BoundParameters parameters(table, DType::f32);
  Embedding::Saved saved;
  const HostTensor output(DType::bf16, 1, 3);
  EXPECT_THROW(embedding.forward(std::array{1}, output, saved), Error);
}

}  // namespace
}  // namespace tutti::training::testing
