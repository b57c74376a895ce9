// Tests models against results of transformers: logits, and the losses of twenty training steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/model_pass.h"
#include "tests/training/support/plain_adamw.h"
#include "training/checkpoint/safetensors.h"
#include "training/hugging_face/directory.h"
#include "training/models/registry.h"
#include "training/parallel/mesh.h"

namespace tutti::training::hugging_face {
namespace {

using training::testing::BoundParameters;
using training::testing::PlainAdamW;
using training::testing::TestPass;

template <typename Stored, typename T = Stored>
std::vector<T> values_of(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* const tensor = file.find(name);
  if (tensor == nullptr) throw Error(ErrorCode::internal, "the fixture has no " + name);
  std::vector<Stored> values(tensor->bytes.size() / sizeof(Stored));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return {values.begin(), values.end()};
}

std::unique_ptr<Model> model_for(const Directory& directory, int64_t context,
                                 const MeshPlace& place) {
  Json configuration = directory.model();
  configuration["context"] = context;
  return make_model(configuration, {.place = place});
}

// The model with the values of the directory, and the fixture's batch. The contexts of the batch
// are shorter than the model's.
struct Rig {
  static constexpr int64_t kContext = 24;

  explicit Rig(const std::string& name, const MeshPlace& place = {})
      : folder("tests/training/fixtures/hugging_face/" + name),
        directory(folder),
        expected(folder + "/expected.safetensors"),
        model(model_for(directory, kContext, place)),
        parameters(model->parameters(), DType::f32),
        tokens(values_of<int32_t>(expected, "tokens")),
        targets(values_of<int32_t>(expected, "targets")),
        test(DType::f32) {
    for (int i = 0; i < parameters.size(); ++i) {
      const ParameterSpec& spec = model->parameters().specs()[static_cast<size_t>(i)];
      const Tensor value = parameters.value(i);
      for_each_run(spec.slice(), 0, value.size(), [&](const Slice::Run& run, int64_t at) {
        directory.read(cat(kModelPrefix, spec.name), run.whole,
                       tensor_at(value.values<float>().data() + at, DType::f32, 1, run.count));
      });
    }
    test.batch.samples = std::ssize(tokens) / kContext;
    test.batch.tokens = tokens;
    test.batch.targets = targets;
    test.pass.loss_scale = 1.0 / static_cast<double>(targets.size());
    test.pass.sample_scale = 1.0 / static_cast<double>(test.batch.samples);
  }

  std::string folder;
  Directory directory;
  SafetensorsFile expected;
  std::unique_ptr<Model> model;
  BoundParameters parameters;
  std::vector<int32_t> tokens, targets;
  TestPass test;
};

class HuggingFaceFixtureTest : public ::testing::TestWithParam<std::string> {};

TEST_P(HuggingFaceFixtureTest, Logits) {
  Rig rig(GetParam());
  const Tensor logits = training::testing::forward(*rig.model, rig.test.pass);
  const std::vector<double> found = training::testing::doubles(logits);
  const std::vector<double> wanted = values_of<float, double>(rig.expected, "logits");
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 1e-5) << i;
}

// Sums the gradients of key heads that both ranks have, because each rank computes a part of their
// gradient.
void sum_partial_gradients(Rig& rig) {
  if (rig.test.pass.mesh == nullptr) return;
  for (int i = 0; i < rig.parameters.size(); ++i) {
    const ParameterSpec& spec = rig.model->parameters().specs()[static_cast<size_t>(i)];
    if (!spec.placement.partial.has(Axis::tensor)) continue;
    rig.test.pass.mesh->along(Axis::tensor).all_reduce(rig.parameters.gradient(i).values<float>());
  }
}

// Returns the sum of the losses that units have added to the pass, and removes these losses.
double balance_loss(Pass& pass) {
  double sum = 0;
  for (const NamedLoss& loss : pass.losses) sum += loss.sum.get() * pass.sample_scale;
  pass.losses.clear();
  return sum;
}

// Trains on a single rank, or on one of several ranks that share the model, and compares the loss
// of each step.
void expect_twenty_losses(Rig& rig) {
  PlainAdamW optimizer(rig.model->parameters(), rig.parameters, {.beta2 = 0.99});
  const std::vector<double> losses = values_of<double>(rig.expected, "losses");
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_LT(losses.back(), losses.front() - 1);
  ExpertLoad* const load = rig.model->expert_load();
  std::vector<double> balance_losses;
  if (load != nullptr) balance_losses = values_of<double>(rig.expected, "balance_losses");
  for (size_t step = 0; step < losses.size(); ++step) {
    const ArenaScope scope(rig.test.arena);
    rig.parameters.clear_gradients();
    if (load != nullptr) load->begin_step();
    training::testing::forward(*rig.model, rig.test.pass);
    EXPECT_NEAR(rig.test.pass.loss.get().sum * rig.test.pass.loss_scale, losses[step], 1e-4);
    training::testing::backward(*rig.model, rig.test.pass);
    if (load != nullptr) {
      EXPECT_NEAR(balance_loss(rig.test.pass), balance_losses[step], 1e-4) << step;
    }
    sum_partial_gradients(rig);
    optimizer.step();
  }
}

TEST_P(HuggingFaceFixtureTest, LossesOfTwentySteps) {
  Rig rig(GetParam());
  expect_twenty_losses(rig);
}

TEST_P(HuggingFaceFixtureTest, LossesOfTwentyStepsOfTwoTensorRanks) {
  tutti::testing::run_ranks(2, [](const Job& job) {
    Mesh mesh(Communicator::init(job), {.tensor = 2, .data = 1});
    Rig rig(GetParam(), mesh.place());
    rig.test.pass.mesh = &mesh;
    expect_twenty_losses(rig);
  });
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceFixtureTest,
                         ::testing::Values("gpt2", "llama", "llama_tied", "llama3", "mistral",
                                           "mixtral", "qwen2moe", "qwen3moe", "olmoe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tutti::training::hugging_face
