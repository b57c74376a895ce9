// Tests factors under DataParallel with integers, so that sums are exact in any order.
#include "training/parallel/hooks/sufficient_factors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "training/modules/linear.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;

constexpr int kUnits = 4;
constexpr int64_t kInputs = 6;
constexpr int64_t kOutputs = 4;

// A unit with a dense layer and a vector; it is never run.
class Stub : public Unit {
 public:
  Stub(ParameterTable& table, const std::string& name)
      : name_(name), linear_(table, name, kInputs, kOutputs) {}
  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return {1, kOutputs}; }
  Tensor forward(Pass&, ConstTensor) override { return {}; }
  Tensor backward(Pass&, ConstTensor) override { return {}; }
  const Linear& linear() const { return linear_; }

 private:
  std::string name_;
  Linear linear_;
};

class StubModel : public Model {
 public:
  StubModel() {
    for (int unit = 0; unit < kUnits; ++unit) add_unit<Stub>("h." + std::to_string(unit));
  }
  double flops_per_sample() const override { return 0; }
  Json configuration() const override { return {{"kind", "stub"}}; }
  int64_t targets_per_sample() const override { return 1; }
};

struct Case {
  int ranks = 2;
  bool overlap = true;
  int stage = 0;
  std::vector<int> factors = {};  // the parameters whose gradients are sent as factors
  int64_t (*rows)(int rank, int step) = nullptr;
};

using Values = std::vector<float>;

struct Outcome {
  std::vector<Values> gradients;  // by step and parameter; zeros for parts that another rank owns
  double bytes_sent = 0;
};

// Runs the backward pass of the layer for one micro-batch.
void add_gradients(Model& model, int unit, int rank, int step, int64_t rows) {
  Arena arena(1 << 20);
  MicroBatch batch;
  Pass pass{{.batch = &batch}, arena};
  const Tensor x = arena.take(DType::f32, rows, kInputs);
  const Tensor dy = arena.take(DType::f32, rows, kOutputs);
  const auto fill = [&](Tensor tensor, int first) {
    int next = first;
    for (float& value : tensor.values<float>()) value = static_cast<float>(next++ * 5 % 7 - 3);
  };
  fill(x, unit + rank);
  fill(dy, step + 2 * rank);
  const auto& stub = static_cast<const Stub&>(*model.units()[static_cast<size_t>(unit)]);
  stub.linear().backward_weight(pass, {.input = x, .output_gradient = dy});
}

Outcome outcome_of(Communicator communicator, const Case& what) {
  StubModel model;
  ParameterStorage storage(communicator, model.parameters(),
                           {.stage = what.stage,
                            .bucket_elements = 40,
                            .first_bucket_elements = 10,
                            .alone = what.factors});
  std::unique_ptr<CommunicationHook> hook;
  if (!what.factors.empty()) {
    hook = std::make_unique<SufficientFactors>(model.parameters(), storage.layout(), what.factors,
                                               DType::f32, communicator);
  }
  DataParallel data_parallel(model, storage, {.overlap = what.overlap}, std::move(hook));
  Outcome outcome;
  constexpr int kMicroBatches = 2;
  for (int step = 0; step < 4; ++step) {
    data_parallel.begin_step(kMicroBatches);
    for (int pass = 0; pass < kMicroBatches; ++pass) {
      for (int unit = kUnits - 1; unit >= 0; --unit) {
        data_parallel.before_backward(unit);
        add_gradients(model, unit, communicator.rank(), step + pass,
                      what.rows(communicator.rank(), step));
        data_parallel.after_backward(unit);
        data_parallel.after_weights(unit);
      }
    }
    data_parallel.finish_gradients();
    const size_t first = outcome.gradients.size();
    for (const ParameterSpec& spec : model.parameters().specs()) {
      outcome.gradients.emplace_back(static_cast<size_t>(spec.count()));
    }
    for (const OwnedPiece& piece : storage.owned()) {
      Values& whole = outcome.gradients[first + static_cast<size_t>(piece.piece.parameter)];
      std::ranges::copy(piece.gradient.values<float>(), whole.begin() + piece.piece.first);
    }
  }
  outcome.bytes_sent = data_parallel.bytes_sent();
  return outcome;
}

std::vector<Outcome> outcomes(const Case& what) {
  std::vector<Outcome> results(static_cast<size_t>(what.ranks));
  run_ranks(what.ranks, [&](const Job& job) {
    results[static_cast<size_t>(job.rank)] = outcome_of(Communicator::init(job), what);
  });
  return results;
}

class Factors : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(Factors, SumWhatAnAllReduceSums) {
  const auto [ranks, overlap] = GetParam();
  for (const auto rows : {
           +[](int, int) -> int64_t { return 3; },
           // Some ranks have 0 rows.
           +[](int rank, int step) -> int64_t { return (rank + step) % 3; },
           // In some steps all ranks have 0 rows.
           +[](int, int step) -> int64_t { return step % 2; },
       }) {
    Case what{.ranks = ranks, .overlap = overlap, .rows = rows};
    const std::vector<Outcome> plain = outcomes(what);
    for (const std::vector<int>& factors : {std::vector{0, 2, 4, 6}, std::vector{2}}) {
      what.factors = factors;
      for (const Outcome& outcome : outcomes(what)) {
        EXPECT_EQ(outcome.gradients, plain.front().gradients);
      }
    }
  }
}

// Each owner gets its shard of the product.
TEST_P(Factors, WorkWithShardedStates) {
  const auto [ranks, overlap] = GetParam();
  Case what{.ranks = ranks, .overlap = overlap, .rows = +[](int rank, int) -> int64_t {
              return rank + 1;
            }};
  const std::vector<Values> plain = outcomes(what).front().gradients;
  what.stage = 1;
  what.factors = {0, 2, 4, 6};
  std::vector<Values> together;
  for (const Outcome& outcome : outcomes(what)) {
    together.resize(outcome.gradients.size());
    for (size_t i = 0; i < together.size(); ++i) {
      together[i].resize(outcome.gradients[i].size());
      std::ranges::transform(together[i], outcome.gradients[i], together[i].begin(), std::plus());
    }
  }
  EXPECT_EQ(together, plain);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Factors,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()));

TEST(FactorBytes, FactorBytesCountTheRows) {
  constexpr int kRanks = 3;
  Case what{.ranks = kRanks, .rows = +[](int, int) -> int64_t { return 5; }};
  what.factors = {0, 2, 4, 6};
  for (const Outcome& outcome : outcomes(what)) {
    constexpr double kSteps = 4, kRows = 2 * 5 * kRanks, kPart = (kRanks - 1.0) / kRanks;
    const double rows = kUnits * kRows * (kInputs + kOutputs) * sizeof(float) * kPart * kSteps;
    // The remaining 4 biases have 4 values each, in slots of 32, and are in buckets.
    const double rest = 2 * kUnits * 32 * sizeof(float) * kPart * kSteps;
    EXPECT_DOUBLE_EQ(outcome.bytes_sent, rows + rest);
  }
}

TEST(FactorBuckets, HaveOneParameter) {
  run_ranks(1, [](const Job& job) {
    Communicator communicator = Communicator::init(job);
    StubModel model;
    const ParameterStorage storage(communicator, model.parameters(), {});
    EXPECT_THROW(
        SufficientFactors(model.parameters(), storage.layout(), {0}, DType::f32, communicator),
        Error);
  });
}

}  // namespace
}  // namespace tutti::training
