#include "training/models/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/training/support/gradient_check.h"
#include "tests/training/support/model_pass.h"
#include "training/models/llama.h"

namespace tutti::training::testing {
namespace {

LlamaConfig tiny(const std::function<void(LlamaConfig&)>& change = {}) {
  LlamaConfig config{.family = LlamaFamily::mixtral,
                     .layers = 2,
                     .heads = 2,
                     .width = 4,
                     .hidden = 6,
                     .context = 5,
                     .vocabulary = 7,
                     .router = {.experts = 4, .topk = 2}};
  if (change) change(config);
  return config;
}

// Returns the minimized value of a pass after its forward().
double minimized(const LlamaConfig& config, Pass& pass) {
  double sum = pass.loss_scale * pass.loss.get().sum;
  for (const NamedLoss& loss : pass.losses) {
    const bool is_balance = loss.name == "balance_loss";
    sum += pass.sample_scale * loss.sum.get() *
           (is_balance ? config.router.balance_loss : config.router.z_loss);
  }
  pass.losses.clear();
  return sum;
}

// `first_sample` selects tokens for which no two experts have close scores, so that the small steps
// of the finite differences do not change a choice.
void check_gradients(const LlamaConfig& config, uint64_t first_sample = 5) {
  Llama model(config);
  SCOPED_TRACE(in_words(model.configuration()));
  const BoundParameters parameters(model.parameters(), DType::f64, 0.4);
  const TokenBatch batch(3, config.context, config.vocabulary, first_sample);
  TestPass test;
  test.batch = batch.micro_batch;
  test.pass.loss_scale = 0.5;
  test.pass.sample_scale = 0.25;
  const auto loss = [&] {
    const ArenaScope scope(test.arena);
    model.expert_load()->begin_step();
    forward(model, test.pass);
    return minimized(config, test.pass);
  };
  model.expert_load()->begin_step();
  forward(model, test.pass);
  backward(model, test.pass);
  test.pass.losses.clear();
  for (int i = 0; i < parameters.size(); ++i) {
    const std::string& name = model.parameters().specs()[static_cast<size_t>(i)].name;
    expect_gradient(name, parameters.value(i), parameters.gradient(i), loss);
  }
}

TEST(MixtureTest, Gradients) {
  check_gradients(tiny());
  check_gradients(tiny([](LlamaConfig& config) { config.router.renormalize = false; }));
  check_gradients(tiny([](LlamaConfig& config) { config.router.topk = 1; }));
  check_gradients(tiny([](LlamaConfig& config) { config.router.topk = 4; }));
}

TEST(MixtureTest, GradientsOfSharedExperts) {
  for (const bool gated : {false, true}) {
    check_gradients(tiny([&](LlamaConfig& config) {
                      config.family = LlamaFamily::qwen2moe;
                      config.shared_hidden = 3;
                      config.shared_gate = gated;
                    }),
                    9);
  }
}

TEST(MixtureTest, GradientsOfLossesOfTheRouter) {
  check_gradients(tiny([](LlamaConfig& config) { config.router.balance_loss = 0.7; }));
  check_gradients(tiny([](LlamaConfig& config) { config.router.z_loss = 0.3; }));
  check_gradients(tiny([](LlamaConfig& config) { config.router.jitter = 0.2; }));
  for (const BalanceScope scope : {BalanceScope::micro_batch, BalanceScope::sequence}) {
    check_gradients(tiny([&](LlamaConfig& config) {
      config.router.balance_loss = 0.7;
      config.router.balance_scope = scope;
    }));
  }
  check_gradients(tiny([](LlamaConfig& config) {
    config.router.balance_loss = 0.7;
    config.router.balance = BalanceOf::each_layer;
    config.router.scores = ExpertScores::sigmoid;
  }));
}

TEST(MixtureTest, GradientsOfNormsOfHeads) {
  for (const LlamaFamily family : {LlamaFamily::qwen3moe, LlamaFamily::olmoe}) {
    check_gradients(tiny([&](LlamaConfig& config) {
      config.family = family;
      config.heads = 4;
      config.kv_heads = 2;
      config.head_size = 2;
    }));
  }
}

// Uses the routing of DeepSeek-V3.
TEST(MixtureTest, GradientsOfGroups) {
  check_gradients(tiny([](LlamaConfig& config) {
    config.router = {.experts = 6,
                     .topk = 3,
                     .scores = ExpertScores::sigmoid,
                     .weight_scale = 2.5,
                     .groups = 3,
                     .topk_groups = 2};
  }));
}

TEST(MixtureTest, GradientsWhereChoicesAreDropped) {
  for (const FullExpert full : {FullExpert::by_position, FullExpert::by_score}) {
    check_gradients(tiny([&](LlamaConfig& config) {
      config.router.capacity = 0.5;
      config.router.full = full;
    }));
  }
}

}  // namespace
}  // namespace tutti::training::testing
