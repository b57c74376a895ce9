// Tests that any number of threads per rank trains the same model, bit for bit. The models are so
// large that their products, convolutions and sums are divided over threads.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using testing::Outcome;
using testing::TinyRun;

struct Case {
  std::string model;
  DType dtype = DType::f32;
  std::string optimizer = "adamw";
  bool deterministic = true;
};

TinyRun run_of(const Case& described) {
  TinyRun run{.batch = 8, .micro_batch = 4, .steps = 3, .validation_samples = 8};
  run.replica.storage.dtype = described.dtype;
  run.replica.clip = 1;
  run.optimizer = {{"name", described.optimizer}};
  if (described.model == "resnet") {
    run.resnet = {.channels = 3, .height = 24, .width = 24, .blocks = {1, 1}, .widths = {16, 32}};
  } else if (described.model == "mlp") {
    run.mlp = MlpModelConfig{.context = testing::kTinyContext, .hidden = 1024};
    run.batch = 128;
    run.micro_batch = 64;
  } else {
    run.model.width = 192;
    run.model.dropout = 0.1;
    run.model.mlp = described.model == "gpt, swiglu" ? MlpKind::swiglu : MlpKind::gelu;
    if (run.model.mlp == MlpKind::swiglu) {
      run.model.norm = NormKind::rms;
      run.model.positions = Positions::rope;
    }
    run.batch = 48;
    run.micro_batch = 24;
  }
  return run;
}

class ThreadsTest : public ::testing::TestWithParam<Case> {};

TEST_P(ThreadsTest, GiveTheSameBits) {
  std::optional<Deterministic> deterministic;
  if (GetParam().deterministic) deterministic.emplace();
  TinyRun run = run_of(GetParam());
  const Outcome expected = testing::train(1, run);
  for (const int threads : {2, 3}) {
    run.replica.threads = threads;
    EXPECT_EQ(testing::difference(testing::train(1, run), expected), "") << threads << " threads";
  }
  run.replica.threads = 1;
  const Outcome on_two = testing::train(2, run);
  run.replica.threads = 2;
  EXPECT_EQ(testing::difference(testing::train(2, run), on_two), "") << "2 ranks, 2 threads";
}

INSTANTIATE_TEST_SUITE_P(Models, ThreadsTest,
                         ::testing::Values(Case{"gpt"}, Case{"gpt", DType::bf16, "lamb"},
                                           Case{"gpt", DType::f16, "adamw", false},
                                           Case{"gpt, swiglu", DType::f32, "lars", false},
                                           Case{"mlp"}, Case{"mlp", DType::bf16, "sgd", false},
                                           Case{"gpt", DType::f32, "muon"}, Case{"resnet"},
                                           Case{"resnet", DType::bf16}),
                         [](const auto& info) {
                           std::string model = info.param.model;
                           std::erase_if(model, [](char c) { return c == ',' || c == ' '; });
                           return cat(model, "_", name(info.param.dtype), "_", info.param.optimizer,
                                      info.param.deterministic ? "_deterministic" : "");
                         });

}  // namespace
}  // namespace tutti::training
