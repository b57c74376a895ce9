// Tests hooks that DataParallel calls during backward, at different times on each rank.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "training/parallel/data_parallel.h"
#include "training/parallel/hooks/half_compression.h"
#include "training/parallel/hooks/powersgd.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;
using Values = std::vector<float>;

// A unit with one matrix and one vector; it is never run.
class Stub : public Unit {
 public:
  Stub(ParameterTable& table, const std::string& name) : name_(name) {
    table.add(name + ".weight", {16, 16}, {});
    table.add(name + ".bias", {16}, {});
  }
  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return {}; }
  Tensor forward(Pass&, ConstTensor) override { return {}; }
  Tensor backward(Pass&, ConstTensor) override { return {}; }

 private:
  std::string name_;
};

class StubModel : public Model {
 public:
  explicit StubModel(int units) {
    for (int unit = 0; unit < units; ++unit) add_unit<Stub>("h." + std::to_string(unit));
  }
  double flops_per_sample() const override { return 0; }
  Json configuration() const override { return {{"kind", "stub"}}; }
  int64_t targets_per_sample() const override { return 1; }
};

constexpr int kUnits = 6;
constexpr int kSteps = 3;

using MakeHook = std::function<std::unique_ptr<CommunicationHook>(const Layout&, Model&)>;

struct Outcome {
  Values gradients;
  double bytes_sent = 0;
};

// Sets gradients to products of small integers. Their matrices have rank 1, and their sums are
// exact in bf16.
void fill(Model& model, int unit, int rank) {
  for (const int parameter : model.parameters().used_by(unit)) {
    const Tensor gradient = model.parameters().at(parameter).gradient;
    for (int64_t row = 0; row < gradient.rows; ++row) {
      const std::span<float> values = gradient.row_range(row, 1).values<float>();
      for (size_t col = 0; col < values.size(); ++col) {
        values[col] += static_cast<float>((rank + 1) * (1 + row % 3) * (1 + (col + unit) % 4));
      }
    }
  }
}

std::vector<Outcome> outcomes(int ranks, bool overlap, const MakeHook& make_hook) {
  std::vector<Outcome> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    StubModel model(kUnits);
    ParameterStorage storage(communicator, model.parameters(),
                             {.bucket_elements = 500, .first_bucket_elements = 100});
    DataParallel data_parallel(model, storage, {.overlap = overlap},
                               make_hook(storage.layout(), model));
    for (int step = 0; step < kSteps; ++step) {
      data_parallel.begin_step(1);
      for (int unit = kUnits - 1; unit >= 0; --unit) {
        data_parallel.before_backward(unit);
        fill(model, unit, job.rank);
        data_parallel.after_backward(unit);
        data_parallel.after_weights(unit);
      }
      data_parallel.finish_gradients();
    }
    Outcome& outcome = results[static_cast<size_t>(job.rank)];
    for (int parameter = 0; parameter < model.parameters().size(); ++parameter) {
      for (const float value : model.parameters().at(parameter).gradient.values<float>()) {
        outcome.gradients.push_back(value);
      }
    }
    outcome.bytes_sent = data_parallel.bytes_sent() / kSteps;
  });
  return results;
}

class HooksTest : public ::testing::TestWithParam<bool> {};

TEST_P(HooksTest, SumEachBucket) {
  const auto none = [](const Layout&, Model&) { return nullptr; };
  const auto half = [](const Layout&, Model&) {
    return std::make_unique<HalfCompression>(DType::bf16);
  };
  const auto power = [](const Layout& layout, Model& model) {
    return std::make_unique<PowerSgd>(layout, model.parameters().specs(), PowerSgdOptions{1});
  };
  constexpr int kRanks = 3;
  const Outcome plain = outcomes(kRanks, GetParam(), none)[0];
  for (const Outcome& outcome : outcomes(kRanks, GetParam(), half)) {
    EXPECT_EQ(outcome.gradients, plain.gradients);
    EXPECT_EQ(outcome.bytes_sent, plain.bytes_sent / 2);
  }
  for (const Outcome& outcome : outcomes(kRanks, GetParam(), power)) {
    ASSERT_EQ(outcome.gradients.size(), plain.gradients.size());
    for (size_t i = 0; i < plain.gradients.size(); ++i) {
      EXPECT_NEAR(outcome.gradients[i], plain.gradients[i], 1e-4) << "element " << i;
    }
    constexpr double kPayload = kUnits * 4 * (16 + 16 + 16);
    EXPECT_DOUBLE_EQ(outcome.bytes_sent, kPayload * 2 * (kRanks - 1) / kRanks);
  }
}

INSTANTIATE_TEST_SUITE_P(Overlap, HooksTest, ::testing::Bool());

}  // namespace
}  // namespace tutti::training
