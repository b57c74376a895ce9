#include "training/modules/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "tests/training/support/gradient_check.h"
#include "tests/training/support/shared_sum.h"

namespace tutti::training::testing {
namespace {

Differentiable differentiable(BatchNorm& norm, BatchNorm::Saved& saved) {
  return {[&](Pass& pass, ConstTensor x) { return norm.forward(pass, x, saved); },
          [&](Pass& pass, ConstTensor dy) { return norm.backward(pass, dy, saved); }};
}

// A module and its table, bound to two parameters: 0 is the weight, 1 the bias.
struct Bound {
  Bound(int64_t channels, DType dtype, const BatchNormOptions& options = {})
      : norm(table, "bn", channels, options), parameters(table, dtype), test(dtype) {}

  std::vector<float> buffer(size_t index) {
    const auto values = norm.buffers().at(index).values;
    return {values.begin(), values.end()};
  }

  ParameterTable table;
  BatchNorm norm;
  BoundParameters parameters;
  TestPass test;
  BatchNorm::Saved saved;
};

TEST(BatchNormTest, Values) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    Bound bound(2, dtype, {.epsilon = 0});
    assign(bound.parameters.value(0), std::vector<double>{2, 3});
    assign(bound.parameters.value(1), std::vector<double>{10, 20});
    // Two images of two pixels; the channels' means are 3 and 0, their deviations 2 and 4.
    HostTensor x(dtype, 2, 4);
    assign(x, std::vector<double>{1, 4, 5, -4, 1, -4, 5, 4});
    EXPECT_EQ(doubles(bound.norm.forward(bound.test.pass, x, bound.saved)),
              (std::vector<double>{8, 23, 12, 17, 8, 17, 12, 23}));
    // The running variances use the unbiased variances 16 / 3 and 64 / 3.
    EXPECT_EQ(bound.buffer(0), (std::vector<float>{0.3f, 0.0f}));
    EXPECT_EQ(bound.buffer(1), (std::vector<float>{static_cast<float>(0.9 + 0.1 * 16 / 3),
                                                   static_cast<float>(0.9 + 0.1 * 64 / 3)}));
  }
}

TEST(BatchNormTest, Names) {
  Bound bound(3, DType::f32, {.zero_gain = true});
  EXPECT_EQ(bound.table.specs()[0].name, "bn.weight");
  EXPECT_EQ(bound.table.specs()[0].initial.scale, 0);
  EXPECT_EQ(bound.table.specs()[1].name, "bn.bias");
  const std::vector<NamedBuffer> buffers = bound.norm.buffers();
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_EQ(buffers[0].name, "bn.running_mean");
  EXPECT_EQ(buffers[1].name, "bn.running_var");
  EXPECT_EQ(bound.buffer(0), std::vector<float>(3, 0.0f));
  EXPECT_EQ(bound.buffer(1), std::vector<float>(3, 1.0f));
}

TEST(BatchNormTest, Gradients) {
  for (const bool training : {true, false}) {
    for (const int64_t channels : {1, 3, 5, 16, 19}) {
      for (const int64_t samples : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << channels << " channels, " << samples << " images, "
                                          << (training ? "training" : "evaluation"));
        ParameterTable table;
        BatchNorm norm(table, "bn", channels);
        for (const NamedBuffer& buffer : norm.buffers()) {
          for (float& value : buffer.values) value += 0.75f;
        }
        TestPass test;
        test.pass.training = training;
        BatchNorm::Saved saved;
        const HostTensor x = random_tensor(DType::f64, samples, 7 * channels, 3);
        expect_gradients(differentiable(norm, saved), table, test, x);
      }
    }
  }
}

// A module with a fused ReLU must equal a module without it, followed by a ReLU.
TEST(BatchNormTest, Relu) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t channels : {3, 17}) {
      SCOPED_TRACE(::testing::Message() << channels << " channels in " << name(dtype));
      Bound plain(channels, dtype), cut(channels, dtype, {.relu = true});
      const HostTensor x = random_tensor(dtype, 3, 7 * channels, 3);
      const HostTensor dy = random_tensor(dtype, 3, 7 * channels, 4);
      std::vector<double> expected = doubles(plain.norm.forward(plain.test.pass, x, plain.saved));
      std::vector<double> masked = doubles(dy);
      int64_t negative = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        if (expected[i] > 0) continue;
        expected[i] = masked[i] = 0;
        ++negative;
      }
      EXPECT_GT(negative, 0);
      EXPECT_EQ(doubles(cut.norm.forward(cut.test.pass, x, cut.saved)), expected);
      HostTensor masked_dy(dtype, 3, 7 * channels);
      assign(masked_dy, masked);
      EXPECT_TRUE(same_bits(cut.norm.backward(cut.test.pass, dy, cut.saved),
                            plain.norm.backward(plain.test.pass, masked_dy, plain.saved)));
      EXPECT_TRUE(same_gradients(cut.parameters, plain.parameters));
    }
  }
}

TEST(BatchNormTest, EvaluationUsesRunningStatistics) {
  Bound bound(1, DType::f32, {.epsilon = 0});
  bound.norm.buffers()[0].values[0] = 10;
  bound.norm.buffers()[1].values[0] = 4;
  assign(bound.parameters.value(0), std::vector<double>{3});
  assign(bound.parameters.value(1), std::vector<double>{1});
  bound.test.pass.training = false;
  HostTensor x(DType::f32, 2, 1);
  assign(x, std::vector<double>{12, 4});
  EXPECT_EQ(doubles(bound.norm.forward(bound.test.pass, x, bound.saved)),
            (std::vector<double>{4, -8}));
  EXPECT_EQ(bound.buffer(0), std::vector<float>{10});  // evaluation does not update statistics
  EXPECT_EQ(bound.buffer(1), std::vector<float>{4});
}

TEST(BatchNormTest, RecomputationCountsOnce) {
  Bound bound(3, DType::f32);
  const HostTensor x = random_tensor(DType::f32, 2, 12, 3);
  const HostTensor first =
      rounded_to(DType::f32, bound.norm.forward(bound.test.pass, x, bound.saved));
  const std::vector<float> mean = bound.buffer(0);
  const std::vector<float> variance = bound.buffer(1);
  bound.test.pass.recomputing = true;
  EXPECT_TRUE(same_bits(bound.norm.forward(bound.test.pass, x, bound.saved), first));
  EXPECT_EQ(bound.buffer(0), mean);
  EXPECT_EQ(bound.buffer(1), variance);
}

TEST(BatchNormTest, AMicroBatchOfWeightZeroIsNotCounted) {
  Bound bound(3, DType::f32);
  bound.norm.forward(bound.test.pass, random_tensor(DType::f32, 2, 12, 3), bound.saved);
  const std::vector<float> mean = bound.buffer(0), variance = bound.buffer(1);
  const HostTensor x = random_tensor(DType::f32, 2, 12, 4);
  bound.test.batch.weight = 0;
  const HostTensor y = rounded_to(DType::f32, bound.norm.forward(bound.test.pass, x, bound.saved));
  EXPECT_EQ(bound.buffer(0), mean);
  EXPECT_EQ(bound.buffer(1), variance);
  bound.test.pass.training = false;
  EXPECT_TRUE(same_bits(bound.norm.forward(bound.test.pass, x, bound.saved), y))
      << "by the running statistics";
}

TEST(BatchNormTest, OneValuePerChannel) {
  Bound bound(2, DType::f32);
  HostTensor x(DType::f32, 1, 2);
  assign(x, std::vector<double>{5, -7});
  const Tensor y = bound.norm.forward(bound.test.pass, x, bound.saved);
  EXPECT_EQ(doubles(y), doubles(bound.parameters.value(1)));  // the bias
  EXPECT_EQ(bound.buffer(1), (std::vector<float>{0.9f, 0.9f}));
}

// Large values that hardly differ: their variance would be lost if it were computed in float from a
// sum of squares.
TEST(BatchNormTest, LargeMean) {
  Bound bound(1, DType::f32, {.epsilon = 0});
  assign(bound.parameters.value(0), std::vector<double>{1});
  assign(bound.parameters.value(1), std::vector<double>{0});
  HostTensor x(DType::f32, 4, 1);
  assign(x, std::vector<double>{65536.5, 65535.5, 65536.5, 65535.5});
  EXPECT_EQ(doubles(bound.norm.forward(bound.test.pass, x, bound.saved)),
            (std::vector<double>{1, -1, 1, -1}));
}

TEST(BatchNormTest, OtherTypesEqualDoubles) {
  struct Tolerance {
    DType dtype;
    double sums;
    double results;
  };
  for (const Tolerance tolerance :
       {Tolerance{DType::f32, 2e-6, 2e-6}, Tolerance{DType::bf16, 2e-6, 0.0041},
        Tolerance{DType::f16, 2e-6, 0.00051}}) {
    for (const int64_t channels : {3, 16, 19}) {
      SCOPED_TRACE(::testing::Message() << channels << " channels in " << name(tolerance.dtype));
      Bound bound(channels, tolerance.dtype), exact(channels, DType::f64);
      exact.parameters.copy_values(bound.parameters);
      const HostTensor x = random_tensor(tolerance.dtype, 3, 35 * channels, 3);
      const HostTensor dy = random_tensor(tolerance.dtype, 3, 35 * channels, 4);
      const HostTensor exact_x = rounded_to(DType::f64, x);
      const HostTensor exact_dy = rounded_to(DType::f64, dy);
      EXPECT_LT(relative_distance(bound.norm.forward(bound.test.pass, x, bound.saved),
                                  exact.norm.forward(exact.test.pass, exact_x, exact.saved)),
                tolerance.results);
      EXPECT_LT(relative_distance(bound.norm.backward(bound.test.pass, dy, bound.saved),
                                  exact.norm.backward(exact.test.pass, exact_dy, exact.saved)),
                tolerance.results);
      for (int i = 0; i < 2; ++i) {
        EXPECT_LT(relative_distance(bound.parameters.gradient(i), exact.parameters.gradient(i)),
                  tolerance.sums);
      }
    }
  }
}

// ---- SyncBN ----

// The values are small integers, and the number of pixels is a power of two. All sums are therefore
// exact, and ranks get the same bits as the whole batch.
HostTensor whole_numbers(int64_t rows, int64_t cols, uint64_t stream) {
  HostTensor x = random_tensor(DType::f32, rows, cols, stream, 8);
  for (int64_t i = 0; i < rows * cols; ++i) {
    set(x, i / cols, i % cols, std::round(get(x, i / cols, i % cols)));
  }
  return x;
}

struct OnRanks {
  std::vector<double> y, dx, gradients;
  std::vector<float> mean, variance;
};

// Runs one thread per rank. Each has its part of the rows, in order. A rank without rows has two
// rows of NaNs with weight 0.
OnRanks run_on_ranks(const std::vector<int64_t>& rows_of_rank, int64_t channels, ConstTensor x,
                     ConstTensor dy, bool synchronized) {
  HostTensor nan(DType::f32, 2, x.cols);
  for (int64_t i = 0; i < 2 * x.cols; ++i) set(nan, i / x.cols, i % x.cols, NAN);
  SharedSum shared(static_cast<int>(rows_of_rank.size()));
  std::vector<std::unique_ptr<Bound>> bounds;
  std::vector<Tensor> y(rows_of_rank.size()), dx(rows_of_rank.size());
  for (size_t rank = 0; rank < rows_of_rank.size(); ++rank) {
    StatisticsReducer* reducer = synchronized ? &shared.reducer(static_cast<int>(rank)) : nullptr;
    bounds.push_back(std::make_unique<Bound>(channels, DType::f32,
                                             BatchNormOptions{.relu = true, .reducer = reducer}));
  }
  {
    std::vector<std::jthread> threads;
    int64_t first = 0;
    for (size_t rank = 0; rank < rows_of_rank.size(); ++rank) {
      threads.emplace_back([&, rank, first] {
        Bound& bound = *bounds[rank];
        const int64_t rows = rows_of_rank[rank];
        if (rows == 0) {
          bound.test.batch.weight = 0;
          bound.norm.forward(bound.test.pass, nan, bound.saved);
          bound.norm.backward(bound.test.pass, nan, bound.saved);
          return;
        }
        y[rank] = bound.norm.forward(bound.test.pass, x.row_range(first, rows), bound.saved);
        dx[rank] = bound.norm.backward(bound.test.pass, dy.row_range(first, rows), bound.saved);
      });
      first += rows_of_rank[rank];
    }
  }
  OnRanks result{.gradients = std::vector<double>(static_cast<size_t>(2 * channels)),
                 .mean = bounds[0]->buffer(0),
                 .variance = bounds[0]->buffer(1)};
  for (size_t rank = 0; rank < rows_of_rank.size(); ++rank) {
    for (const double value : doubles(y[rank])) result.y.push_back(value);
    for (const double value : doubles(dx[rank])) result.dx.push_back(value);
    EXPECT_EQ(!synchronized || bounds[rank]->buffer(0) == result.mean, true);
    EXPECT_EQ(!synchronized || bounds[rank]->buffer(1) == result.variance, true);
    for (size_t i = 0; i < 2; ++i) {
      const std::vector<double> gradient =
          doubles(bounds[rank]->parameters.gradient(static_cast<int>(i)));
      for (size_t c = 0; c < gradient.size(); ++c) {
        result.gradients[i * gradient.size() + c] += gradient[c];
      }
    }
  }
  return result;
}

TEST(SyncBatchNormTest, RanksEqualTheWholeBatch) {
  constexpr int64_t kChannels = 5;
  const HostTensor x = whole_numbers(8, 4 * kChannels, 3);
  const HostTensor dy = whole_numbers(8, 4 * kChannels, 4);
  const OnRanks whole = run_on_ranks({8}, kChannels, x, dy, false);
  for (const std::vector<int64_t>& ranks :
       {std::vector<int64_t>{8}, {4, 4}, {1, 7}, {2, 1, 5}, {2, 2, 2, 2}, {8, 0}, {3, 0, 5}}) {
    SCOPED_TRACE(::testing::PrintToString(ranks));
    const OnRanks parts = run_on_ranks(ranks, kChannels, x, dy, true);
    EXPECT_EQ(parts.y, whole.y);
    EXPECT_EQ(parts.dx, whole.dx);
    EXPECT_EQ(parts.mean, whole.mean);
    EXPECT_EQ(parts.variance, whole.variance);
    // Each rank rounds its gradients to float.
    EXPECT_LT(relative_distance(parts.gradients, whole.gradients), 1e-6);
  }
  // Without synchronization, the results differ from those of the whole batch.
  EXPECT_NE(run_on_ranks({4, 4}, kChannels, x, dy, false).y, whole.y);
}

}  // namespace
}  // namespace tutti::training::testing
