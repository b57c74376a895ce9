// Tests that models in a second backend's memory give the same bits as on the CPU, and that only
// kernels access this memory.
#include "training/core/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/fenced_backend.h"
#include "tests/training/support/model_pass.h"
#include "tests/training/support/tiny_run.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"
#include "training/models/llama.h"

namespace tutti::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// --- memory ---

Tensor fenced_tensor(Arena& arena) {
  const Tensor tensor = arena.take(DType::f32, 4, 6);
  zero(tensor);
  return tensor;
}

TEST(BackendTest, ViewsKeepTheirMemory) {
  Arena arena(&fenced_backend());
  const Tensor tensor = fenced_tensor(arena);
  EXPECT_EQ(tensor.backend, &fenced_backend());
  EXPECT_EQ(ConstTensor(tensor).backend, &fenced_backend());
  EXPECT_EQ(tensor.row_range(1, 2).backend, &fenced_backend());
  EXPECT_EQ(tensor.col_range(1, 2).backend, &fenced_backend());
  EXPECT_EQ(tensor.reshaped(8, 3).backend, &fenced_backend());
  EXPECT_EQ(arena.take(DType::f32, 0, 6).backend, &fenced_backend());
}

// The tests below rely on this: an access to the memory by code other than kernels kills the
// process.
TEST(BackendDeathTest, OnlyKernelsMayAccessMemory) {
  Arena arena(&fenced_backend());
  const Tensor tensor = fenced_tensor(arena);
  EXPECT_DEATH(*tensor.data = std::byte{1}, "");
  EXPECT_THROW(tensor.values<float>(), Error);
}

TEST(BackendTest, CopiesGoFromTheHostAndBack) {
  Arena arena(&fenced_backend());
  const HostTensor from = random_tensor(DType::f32, 4, 6, 1);
  const Tensor there = arena.take(DType::f32, 4, 6), small = arena.take(DType::bf16, 4, 6);
  copy(from, there);
  convert(there, small);
  HostTensor back(DType::f32, 4, 6), rounded(DType::f32, 4, 6);
  copy(there, back);
  convert(small, rounded);
  EXPECT_TRUE(same_bits(back, from));
  EXPECT_TRUE(same_bits(rounded, rounded_to(DType::f32, rounded_to(DType::bf16, from))));
}

TEST(BackendTest, RefusesToMixMemories) {
  Arena arena(&fenced_backend()), own;
  const Tensor there = fenced_tensor(arena);
  const HostTensor here(DType::f32, 4, 6), row(DType::f32, 1, 6), square(DType::f32, 4, 4);
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal([&] { gelu(here, there); }),
              AllOf(HasSubstr("gelu"), HasSubstr("of cpu"), HasSubstr("of fenced")));
  EXPECT_THAT(refusal([&] { gemm(there, Transpose::no, there, Transpose::yes, square); }),
              HasSubstr("gemm"));
  EXPECT_THAT(refusal([&] { add_column_sums(here, row, arena); }), HasSubstr("add_column_sums"));
  EXPECT_EQ(refusal([&] { add_column_sums(here, row, own); }), "");
}

// --- modules ---

// A model's parameters and gradients (initially 0) in a backend's memory.
class ParametersIn {
 public:
  ParametersIn(const Backend* backend, ParameterTable& table)
      : bound_(table, DType::f32), table_(table), arena_(size_t{1} << 28, backend) {
    for (int index = 0; index < table.size(); ++index) {
      const Tensor value = bound_.value(index);
      const Tensor here = arena_.take(value.dtype, value.rows, value.cols);
      gradients_.push_back(arena_.take(DType::f32, value.rows, value.cols));
      copy(value, here);
      zero(gradients_.back());
      table.set_value(index, here);
      table.set_gradient(index, gradients_.back());
    }
  }
  Arena& arena() { return arena_; }
  std::vector<HostTensor> gradients() const {
    std::vector<HostTensor> found;
    for (const Tensor& gradient : gradients_) {
      copy(gradient, found.emplace_back(gradient.dtype, gradient.rows, gradient.cols));
    }
    return found;
  }

 private:
  BoundParameters bound_;
  ParameterTable& table_;
  Arena arena_;
  std::vector<Tensor> gradients_;
};

struct Passed {
  Loss loss;
  HostTensor logits;
  std::vector<HostTensor> gradients;
};

Passed pass_in(const Backend* backend, Model& model, const MicroBatch& batch) {
  ParametersIn parameters(backend, model.parameters());
  Pass pass{{.batch = &batch}, parameters.arena()};
  const int64_t waits = fenced_calls().waits;
  const Tensor logits = forward(model, pass);
  Passed outcome{.logits = HostTensor(logits.dtype, logits.rows, logits.cols)};
  copy(logits, outcome.logits);
  backward(model, pass);
  EXPECT_EQ(fenced_calls().waits, waits) << "a pass waits for its loss";
  outcome.loss = pass.loss.get();
  outcome.gradients = parameters.gradients();
  return outcome;
}

// Expects the same bits as on the CPU in every element. An access other than by kernels would kill
// the process.
void expect_same_in_fenced_memory(Model& model, const MicroBatch& batch) {
  const Passed expected = pass_in(nullptr, model, batch);
  const FencedCalls before = fenced_calls();
  const Passed found = pass_in(&fenced_backend(), model, batch);
  EXPECT_GT(fenced_calls().kernels, before.kernels + std::ssize(model.units()));
  EXPECT_EQ(fenced_calls().waits, before.waits + 1) << "the loss is waited for once";
  EXPECT_NE(expected.loss.sum, 0);
  EXPECT_EQ(found.loss.sum, expected.loss.sum);
  EXPECT_EQ(found.loss.correct, expected.loss.correct);
  EXPECT_TRUE(same_bits(found.logits, expected.logits));
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(found.gradients[i], expected.gradients[i]))
        << model.parameters().specs()[i].name;
  }
}

TEST(BackendTest, ModelsPassThroughAnyMemory) {
  const TokenBatch tokens(3, 8, 13);
  MlpModel mlp({.context = 8, .embedding = 6, .hidden = 16, .layers = 2, .vocabulary = 13});
  MicroBatch batch = tokens.micro_batch;
  batch.targets = batch.targets.first(3);
  expect_same_in_fenced_memory(mlp, batch);
  Gpt gpt({.layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 13, .dropout = 0.1});
  expect_same_in_fenced_memory(gpt, tokens.micro_batch);
  Llama llama(
      {.layers = 2, .heads = 4, .kv_heads = 2, .width = 16, .context = 8, .vocabulary = 13});
  expect_same_in_fenced_memory(llama, tokens.micro_batch);
}

// Units report their progress to hooks, and the runner does not wait for the loss before the
// backward pass.
TEST(BackendTest, ARunnerWaitsForTheLossAfterBackward) {
  struct Calls : UnitHooks {
    void after_weights(int unit) override {
      if (unit == 0) last = fenced_calls();
    }
    FencedCalls last;
  };
  MlpModel mlp({.context = 4, .embedding = 6, .hidden = 16, .layers = 2, .vocabulary = 13});
  const TokenBatch tokens(3, 4, 13);
  MicroBatch batch = tokens.micro_batch;
  batch.targets = batch.targets.first(3);
  const ParametersIn parameters(&fenced_backend(), mlp.parameters());
  ModelRunner runner(mlp, {.backend = &fenced_backend()});
  Calls calls;
  const FencedCalls before = fenced_calls();
  const PassResult found = runner.train(batch, {}, calls);
  EXPECT_NE(found.loss_sum, 0);
  EXPECT_EQ(calls.last.waits, before.waits);
  EXPECT_GE(calls.last.synchronized, before.synchronized + std::ssize(mlp.units()));
  EXPECT_EQ(fenced_calls().waits, before.waits + 1);
}

// --- training ---

// Expects three steps and an evaluation in fenced memory to have the same results as in host
// memory.
void expect_same_training(TinyRun run) {
  run.steps = 3;
  run.validation_samples = 3;
  const Outcome expected = train(1, run);
  const FencedCalls before = fenced_calls();
  run.replica.storage.backend = run.replica.runner.backend = &fenced_backend();
  EXPECT_EQ(difference(train(1, run), expected), "");
  EXPECT_GT(fenced_calls().synchronized, before.synchronized);
}

TEST(BackendTest, TrainsInAnyMemory) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const uint64_t micro_batch : {1, 4}) {
      TinyRun run{.micro_batch = micro_batch};
      run.replica.storage.dtype = type;
      run.replica.clip = 0.5;
      expect_same_training(run);
    }
  }
}

TEST(BackendTest, TrainsWithRecomputedActivations) {
  TinyRun run;
  run.replica.runner.checkpoint_units = true;
  expect_same_training(run);
}

TEST(BackendTest, TrainsWithoutMasters) {
  TinyRun run;
  run.replica.storage.dtype = DType::bf16;
  run.replica.stochastic_rounding = true;
  expect_same_training(run);
}

TEST(BackendTest, TrainsModelsOfEveryKind) {
  expect_same_training({.mlp = MlpModelConfig{.context = kTinyContext, .hidden = 24}});
  TinyRun llama;
  llama.other_model = [](const MeshPlace&) {
    return std::make_unique<Llama>(
        LlamaConfig{.layers = 2, .heads = 4, .kv_heads = 2, .width = 32, .context = kTinyContext});
  };
  expect_same_training(llama);
}

TEST(BackendTest, TrainsImages) {
  expect_same_training(
      {.resnet =
           ResNetConfig{.height = 8, .width = 8, .classes = 2, .blocks = {1, 1}, .widths = {4, 8}},
       .micro_batch = 2});
}

}  // namespace
}  // namespace tutti::training::testing
