// Tests top-k compression: each rank sends its largest elements that have not been sent, and keeps
// the others for later steps.
#include "training/parallel/hooks/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "tests/training/parallel/hooks/one_bucket.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;
using Values = std::vector<float>;

constexpr size_t kCount = 200;

Values gradient(int rank, int step) {
  Values values;
  for (size_t i = 0; i < kCount; ++i) {
    values.push_back(std::round(
        50 * std::sin(0.9f * static_cast<float>(i) + static_cast<float>(rank + 5 * step))));
  }
  return values;
}

// Computes each step's result, and the unsent elements of all ranks, by sorting.
struct Reference {
  Reference(int ranks, size_t k) : k(k), errors(static_cast<size_t>(ranks), Values(kCount)) {}
  Values step(int step) {
    Values sum(kCount);
    for (size_t rank = 0; rank < errors.size(); ++rank) {
      Values& error = errors[rank];
      const Values own = gradient(static_cast<int>(rank), step);
      for (size_t i = 0; i < kCount; ++i) error[i] += own[i];
      std::vector<size_t> order(kCount);
      std::iota(order.begin(), order.end(), size_t{0});
      std::ranges::stable_sort(order, std::ranges::greater{},
                               [&](size_t i) { return std::abs(error[i]); });
      for (size_t i = 0; i < k; ++i) sum[order[i]] += std::exchange(error[order[i]], 0.0f);
    }
    return sum;
  }
  size_t k;
  std::vector<Values> errors;
};

TEST(TopK, SendsTheLargestAndRemembersTheRest) {
  const testing::OneBucket one({kCount}, kCount);
  for (const auto& [fraction, k] :
       {std::pair{0.001, size_t{1}}, {0.1, 20}, {0.5, 100}, {1, kCount}}) {
    for (const int ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(std::to_string(fraction) + " on " + std::to_string(ranks));
      constexpr int kSteps = 5;
      Reference reference(ranks, k);
      std::vector<Values> wanted;
      for (int step = 0; step < kSteps; ++step) wanted.push_back(reference.step(step));
      run_ranks(ranks, [&, fraction = fraction](const Job& job) {
        Communicator communicator = Communicator::init(job);
        TopK hook(fraction, one.layout, one.specs);
        for (int step = 0; step < kSteps; ++step) {
          Values own = gradient(job.rank, step);
          const Tensor gradients = tensor_at(own.data(), DType::f32, 1, kCount);
          hook.start(communicator, 0, gradients);
          hook.finish(0, gradients);
          EXPECT_EQ(own, wanted[static_cast<size_t>(step)]) << step;
        }
        const std::vector<HookState> states = hook.states(communicator, DType::f32);
        ASSERT_EQ(states.size(), 1u);
        EXPECT_EQ(states[0].name, "topk.error.a");
        EXPECT_TRUE(std::ranges::equal(states[0].values.values<float>(),
                                       reference.errors[static_cast<size_t>(job.rank)]));
      });
    }
  }
}

TEST(TopK, ReportsNonFiniteValues) {
  const testing::OneBucket one({kCount}, kCount);
  run_ranks(2, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    TopK hook(0.01, one.layout, one.specs);
    Values own(kCount, 1.0f);
    if (job.rank == 1) own[150] = std::numeric_limits<float>::quiet_NaN();
    const Tensor gradients = tensor_at(own.data(), DType::f32, 1, kCount);
    hook.start(communicator, 0, gradients);
    hook.finish(0, gradients);
    EXPECT_TRUE(std::isnan(own[150]));
    std::ranges::fill(own, 1.0f);
    hook.start(communicator, 0, gradients);
    hook.finish(0, gradients);
    for (const float value : own) EXPECT_TRUE(std::isfinite(value));
  });
}

TEST(TopK, RefusesInvalidFractionsAndTypes) {
  const testing::OneBucket one({kCount}, kCount);
  for (const double fraction : {0.0, -1.0, 1.5, std::nan("")}) {
    EXPECT_THROW(TopK(fraction, one.layout, one.specs), Error) << fraction;
  }
  run_ranks(1, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    TopK hook(0.5, one.layout, one.specs);
    EXPECT_THROW(hook.states(communicator, DType::f16), Error);
  });
}

}  // namespace
}  // namespace tutti::training
