// Tests hooks that contain other hooks: uncompressed first steps, compression of selected
// parameters only, and 1-bit Adam, which uses both.
#include "training/parallel/hooks/warm_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "tests/training/parallel/hooks/one_bucket.h"
#include "training/parallel/hooks/block_compression.h"
#include "training/parallel/hooks/one_bit_adam.h"
#include "training/parallel/hooks/selection.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;
using Values = std::vector<float>;

Tensor tensor_of(Values& values) {
  return tensor_at(values.data(), DType::f32, 1, std::ssize(values));
}

Values gradients_of(int rank, int step, size_t count) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(static_cast<int>(i) + 5 * rank + 11 * step));
  }
  return values;
}

// Sets the gradients that it is given to 1000, so that tests can see which they are.
class Thousands : public CommunicationHook {
 public:
  void start(Communicator&, int, Tensor) override {}
  void finish(int, Tensor gradients) override {
    for (float& value : gradients.values<float>()) value = 1000;
  }
  bool remembers() const override { return true; }
  int64_t bytes() const override { return 7; }
  int64_t payload_bytes(int, Tensor gradients) const override { return gradients.size(); }
};

TEST(WarmUp, SendsTheFirstStepsUncompressed) {
  run_ranks(3, [](const Job& job) {
    Communicator communicator = Communicator::init(job);
    WarmUp hook(2, std::make_unique<Thousands>());
    for (int step = 0; step < 4; ++step) {
      for (int bucket = 0; bucket < 2; ++bucket) {
        Values own(10, static_cast<float>(job.rank + 1));
        hook.start(communicator, bucket, tensor_of(own));
        EXPECT_EQ(hook.payload_bytes(bucket, tensor_of(own)), step < 2 ? 40 : 10);
        hook.finish(bucket, tensor_of(own));
        EXPECT_EQ(own, Values(10, step < 2 ? 6 : 1000)) << step;
      }
    }
    // A run resumed from a checkpoint continues with the same number of warm-up steps.
    std::vector<HookState> states = hook.states(communicator, DType::f32);
    ASSERT_EQ(states.size(), 1u);
    EXPECT_EQ(states[0].values.values<float>()[0], 4);
    WarmUp resumed(5, std::make_unique<Thousands>());
    resumed.states(communicator, DType::f32)[0].values.values<float>()[0] = 4;
    for (int step = 4; step < 6; ++step) {
      Values own(10, 1);
      resumed.start(communicator, 0, tensor_of(own));
      resumed.finish(0, tensor_of(own));
      EXPECT_EQ(own, Values(10, step < 5 ? 3 : 1000)) << step;
    }
  });
}

TEST(Selection, KnowsPatterns) {
  EXPECT_TRUE(fits("h.0.attn.weight", "*.weight"));
  EXPECT_TRUE(fits("wte", "*.weight,wt?"));
  EXPECT_FALSE(fits("h.0.attn.bias", "*.weight,wte"));
  EXPECT_FALSE(fits("wte", ""));
  EXPECT_NO_THROW(check_patterns("b", testing::OneBucket({1, 1}, 2).specs));
  EXPECT_THROW(check_patterns("c", testing::OneBucket({1, 1}, 2).specs), Error);
}

TEST(Selection, CompressesWhatFitsAndSumsTheRest) {
  const testing::OneBucket one({3, 20, 5}, 32);
  for (const char* patterns : {"b", "a,c", "*"}) {
    SCOPED_TRACE(patterns);
    run_ranks(2, [&](const Job& job) {
      Communicator communicator = Communicator::init(job);
      Selection hook(patterns, one.layout, one.specs, [&](const Layout& layout) {
        int64_t chosen = 0;
        for (const int parameter : layout.buckets[0].parameters) {
          EXPECT_EQ(layout.slots[static_cast<size_t>(parameter)].offset % 16, 0);
          chosen += layout.slots[static_cast<size_t>(parameter)].count;
        }
        EXPECT_GE(layout.buckets[0].size, chosen);
        return std::make_unique<Thousands>();
      });
      for (int step = 0; step < 2; ++step) {
        Values own(32, static_cast<float>(job.rank + 1));
        hook.start(communicator, 0, tensor_of(own));
        hook.finish(0, tensor_of(own));
        for (size_t p = 0; p < 3; ++p) {
          const Slot& slot = one.layout.slots[p];
          const float wanted = fits(one.specs[p].name, patterns) ? 1000 : 3;
          for (int64_t i = 0; i < slot.count; ++i) {
            EXPECT_EQ(own[static_cast<size_t>(slot.offset + i)], wanted);
          }
        }
      }
      EXPECT_GT(hook.bytes(), 7);
    });
  }
}

// Gaps between parameters remain zero in all formats.
TEST(Selection, LeavesTheGapsZero) {
  const testing::OneBucket one({10, 6}, 16);
  run_ranks(3, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    Selection hook("a", one.layout, one.specs, [&](const Layout& layout) {
      return std::make_unique<BlockCompression>(BlockFormat::sign, layout, one.specs);
    });
    float most = 0;
    for (int step = 0; step < 100; ++step) {
      Values own(16, 1);
      hook.start(communicator, 0, tensor_of(own));
      hook.finish(0, tensor_of(own));
      for (size_t i = 0; i < 10; ++i) most = std::max(most, std::abs(own[i]));
    }
    EXPECT_LT(most, 10);  // exactly, the sum is 3
  });
}

// Adam would divide by the second moment. Elements whose second moment is 0 are therefore not
// changed.
TEST(OneBitAdam, LeavesElementsWithoutGradientInTheWarmUp) {
  const testing::OneBucket one({20}, 20);
  run_ranks(2, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    OneBitAdam hook(2, 0.9, one.layout, one.specs);
    for (int step = 0; step < 10; ++step) {
      Values own = gradients_of(job.rank, step, 20);
      if (step < 2) own[7] = 0;
      hook.start(communicator, 0, tensor_of(own));
      hook.finish(0, tensor_of(own));
      EXPECT_EQ(own[7], 0) << step;
      EXPECT_NE(own[8], 0) << step;
    }
  });
}

// From the results of the hook, the optimizer computes the moment that the ranks have exchanged.
// Rounding errors are added to later gradients.
TEST(OneBitAdam, GivesTheGradientsOfTheExchangedMoments) {
  constexpr float kBeta = 0.9f;
  constexpr size_t kCount = 300;
  constexpr int kWarmUp = 3;
  const testing::OneBucket one({100, 200}, kCount);
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    std::vector<Values> results(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](const Job& job) {
      Communicator communicator = Communicator::init(job);
      OneBitAdam hook(kWarmUp, kBeta, one.layout, one.specs);
      Values moment(kCount);  // as computed by the optimizer
      Values exact(kCount);   // exact sums of all gradients
      for (int step = 0; step < 60; ++step) {
        Values own = gradients_of(job.rank, step, kCount);
        Values sum(kCount);
        for (int rank = 0; rank < ranks; ++rank) {
          const Values its = gradients_of(rank, step, kCount);
          for (size_t i = 0; i < kCount; ++i) sum[i] += its[i];
        }
        hook.start(communicator, 0, tensor_of(own));
        hook.finish(0, tensor_of(own));
        for (size_t i = 0; i < kCount; ++i) {
          if (step < kWarmUp) {
            EXPECT_NEAR(own[i], sum[i], 1e-5);
          }
          moment[i] = kBeta * moment[i] + (1 - kBeta) * own[i];
          exact[i] = kBeta * exact[i] + (1 - kBeta) * sum[i];
        }
      }
      // Everything that was not sent is in the errors. Summed over steps, the moments therefore
      // differ by no more than the errors, and, because moments decay, they stay close to each
      // other.
      double difference = 0;
      double size = 0;
      for (size_t i = 0; i < kCount; ++i) {
        difference += std::abs(moment[i] - exact[i]);
        size += std::abs(exact[i]);
      }
      EXPECT_LT(difference, 0.9 * size);
      for (const HookState& state : hook.states(communicator, DType::f32)) {
        if (!state.name.starts_with("onebit.moment.")) continue;
        EXPECT_EQ(state.kind, RowKind::same);
        const size_t first = state.name == "onebit.moment.a" ? 0 : 100;
        const auto told = state.values.values<float>();
        for (size_t i = 0; i < told.size(); ++i) EXPECT_NEAR(told[i], moment[first + i], 1e-4);
      }
      results[static_cast<size_t>(job.rank)] = moment;
    });
    for (const Values& result : results) EXPECT_EQ(result, results[0]);
  }
}

}  // namespace
}  // namespace tutti::training
