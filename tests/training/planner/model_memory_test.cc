// Tests the residual states of GPT-2 with 1.5 B parameters against Rajbhandari et al., 2020,
// section 3.2.
#include "training/planner/model_memory.h"

#include <gtest/gtest.h>

namespace tutti::training::planner {
namespace {

constexpr double kBucket = 25 << 20;

TEST(ModelMemory, ResidualStatesMatchThePaper) {
  const ModelShape gpt2 = load_model_shape("gpt2-xl");
  const ResidualStates states = residual_states(gpt2, 32, 1024, kBucket);
  EXPECT_NEAR(states.activations / 1e9, 60, 1);
  EXPECT_NEAR(states.recomputed / 1e9, 8, 2);
  EXPECT_NEAR(states.flat_buffer / 1e9, 6, 0.3);
  EXPECT_DOUBLE_EQ(states.fixed_buffer, kBucket);
}

TEST(ModelMemory, ActivationsGrowWithTheBatchAndTheSequence) {
  const ModelShape gpt2 = load_model_shape("gpt2");
  const ResidualStates one = residual_states(gpt2, 1, 1024, kBucket);
  EXPECT_DOUBLE_EQ(residual_states(gpt2, 8, 1024, kBucket).activations, 8 * one.activations);
  EXPECT_DOUBLE_EQ(residual_states(gpt2, 1, 2048, kBucket).recomputed, 2 * one.recomputed);
}

TEST(ModelMemory, ABufferNeverExceedsTheGradients) {
  const ModelShape gpt2 = load_model_shape("gpt2");
  const ResidualStates states = residual_states(gpt2, 1, 1, 1e15);
  EXPECT_DOUBLE_EQ(states.fixed_buffer, states.flat_buffer);
}

}  // namespace
}  // namespace tutti::training::planner
