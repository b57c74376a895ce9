// Tests sums of gradients over micro-batches and ranks in 16-bit training. The reference is the
// same model with the same values in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/model_pass.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::BoundParameters;
using testing::TestPass;
using testing::TinyRank;
using testing::TinyRun;
using testing::Whole;
using tutti::testing::run_ranks;

struct Case {
  int micro_batches;
  int ranks;
  DType dtype;
  int stage;
};

TinyRun run_of(const Case& c) {
  TinyRun run;
  run.replica.storage = {.stage = c.stage, .dtype = c.dtype};
  run.batch = static_cast<uint64_t>(c.micro_batches);
  run.steps = 1;
  // f16 gradients are divided by the number of targets in the step.
  if (c.dtype == DType::f16) run.replica.loss_scaling = {.initial_scale = 4096};
  return run;
}

Whole empty_whole(Model& model) {
  Whole whole;
  for (const ParameterSpec& spec : model.parameters().specs()) {
    whole.emplace_back(static_cast<size_t>(spec.count()));
  }
  return whole;
}

// Values and gradients of a run that has one step.
struct Gradients {
  Whole values;  // the parameters before the step
  Whole sums;
};

Gradients trained(const Case& c) {
  const TinyRun run = run_of(c);
  Gradients gradients;
  {
    const std::unique_ptr<Model> model = make_model(run);
    gradients.values = gradients.sums = empty_whole(*model);
  }
  std::mutex mutex;
  run_ranks(c.ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    const auto copy = [&](Whole& to, auto&& of) {
      const std::scoped_lock lock(mutex);
      for (const OwnedPiece& piece : rank.replica.owned()) {
        const std::vector<double> elements = testing::doubles(of(piece));
        std::ranges::transform(
            elements, to[static_cast<size_t>(piece.piece.parameter)].begin() + piece.piece.first,
            [](double element) { return static_cast<float>(element); });
      }
    };
    rank.replica.finish_values();
    copy(gradients.values, [](const OwnedPiece& piece) { return ConstTensor(piece.value); });
    const StepResult result = rank.step();
    EXPECT_FALSE(result.skipped);
    copy(gradients.sums, [](const OwnedPiece& piece) { return piece.gradient; });
    if (job.rank != 0) return;
    const std::scoped_lock lock(mutex);
    for (std::vector<float>& sum : gradients.sums) {
      for (float& element : sum) element /= static_cast<float>(result.loss_scale);
    }
  });
  return gradients;
}

std::vector<std::vector<double>> reference(const Case& c, const Whole& values) {
  const TinyRun run = run_of(c);
  const std::unique_ptr<Model> model = make_model(run);
  const std::unique_ptr<DataSet> data = make_data(run);
  const Feed feed(
      {data.get()},
      {.batch = run.batch, .micro_batch = run.micro_batch, .samples = run.batch, .workers = 0});
  const BoundParameters parameters(model->parameters(), DType::f64);
  for (int i = 0; i < parameters.size(); ++i) {
    const std::vector<float>& own = values[static_cast<size_t>(i)];
    testing::assign(parameters.value(i), std::vector<double>(own.begin(), own.end()));
  }
  const StepFeed step = feed.steps_from(0)->next().value();
  for (const Batch& batch : step.own) {
    TestPass test(DType::f64);
    test.batch = batch.view();
    test.pass.loss_scale =
        1.0 / static_cast<double>(step.samples) / static_cast<double>(model->targets_per_sample());
    testing::forward(*model, test.pass);
    testing::backward(*model, test.pass);
  }
  std::vector<std::vector<double>> sums;
  for (int i = 0; i < parameters.size(); ++i) {
    sums.push_back(testing::doubles(parameters.gradient(i)));
  }
  return sums;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

class GradientSums : public ::testing::TestWithParam<Case> {};

TEST_P(GradientSums, SumsEqualF64SumsUpToActivationRounding) {
  const Gradients found = trained(GetParam());
  const std::vector<std::vector<double>> expected = reference(GetParam(), found.values);
  std::vector<double> all, wanted;
  for (size_t i = 0; i < expected.size(); ++i) {
    all.insert(all.end(), found.sums[i].begin(), found.sums[i].end());
    wanted.insert(wanted.end(), expected[i].begin(), expected[i].end());
  }
  std::vector<double> differences(all.size());
  std::ranges::transform(all, wanted, differences.begin(), std::minus<double>());
  const double square = product(wanted, wanted);
  const double distance = std::sqrt(product(differences, differences) / square);
  const double bias = product(differences, wanted) / square;
  RecordProperty("distance", cat(distance));
  RecordProperty("bias", cat(bias));
  EXPECT_LT(distance, 0.003) << "of the norm";
  EXPECT_LT(std::abs(bias), 0.001) << "as if every step were longer or shorter";
}

INSTANTIATE_TEST_SUITE_P(
    MicroBatches, GradientSums,
    ::testing::Values(Case{64, 1, DType::bf16, 0}, Case{1024, 1, DType::bf16, 0},
                      Case{64, 2, DType::bf16, 1}, Case{64, 2, DType::bf16, 2},
                      Case{1024, 3, DType::bf16, 3}, Case{64, 1, DType::f16, 0}),
    [](const auto& info) {
      const Case& c = info.param;
      return cat(c.micro_batches, "On", c.ranks, name(c.dtype), "Stage", c.stage);
    });

}  // namespace
}  // namespace tutti::training
