// Tests compression in blocks: ranks receive values that are rounded to the format, and rounding
// errors are added to later gradients.
#include "training/parallel/hooks/block_compression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "tests/training/parallel/hooks/one_bucket.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;
using Values = std::vector<float>;

constexpr int64_t kCount = 1000;

float gradient(int rank, int step, int64_t i) {
  return std::sin(0.37f * static_cast<float>(i) + static_cast<float>(3 * rank + 7 * step)) *
         std::ldexp(1.0f, static_cast<int>(i % 9) - 4);
}

Values through(BlockFormat format, const Values& values) {
  std::vector<std::byte> bytes(bytes_of(format, values.size()));
  encode(format, values, bytes);
  Values decoded(values.size());
  decode(format, bytes, decoded);
  return decoded;
}

// Computes the results of the hook in plain loops over all ranks, part by part.
class Reference {
 public:
  Reference(BlockFormat format, int ranks)
      : format_(format), errors_(static_cast<size_t>(ranks), Values(kCount)) {}

  Values step(int step) {
    const auto ranks = static_cast<int>(errors_.size());
    const auto block = static_cast<int64_t>(block_of(format_));
    const int64_t blocks = (kCount + block - 1) / block;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int64_t i = 0; i < kCount; ++i) error(rank, i) += gradient(rank, step, i);
    }
    Values result(kCount);
    for (int owner = 0; owner < ranks; ++owner) {
      const Share part = even_share(blocks, owner, ranks);
      const int64_t first = part.first * block;
      const int64_t end = std::min(kCount, first + part.count * block);
      if (first >= end) continue;
      Values sum(static_cast<size_t>(end - first));
      for (int rank = 0; rank < ranks; ++rank) {
        Values own;
        for (int64_t i = first; i < end; ++i) own.push_back(error(rank, i));
        const Values sent = through(format_, own);
        for (size_t i = 0; i < sum.size(); ++i) {
          sum[i] += sent[i];
          error(rank, first + static_cast<int64_t>(i)) -= sent[i];
        }
      }
      const Values told = through(format_, sum);
      for (size_t i = 0; i < sum.size(); ++i) {
        result[static_cast<size_t>(first) + i] = told[i];
        error(owner, first + static_cast<int64_t>(i)) += sum[i] - told[i];
      }
    }
    return result;
  }

  float& error(int rank, int64_t i) {
    return errors_[static_cast<size_t>(rank)][static_cast<size_t>(i)];
  }

 private:
  BlockFormat format_;
  std::vector<Values> errors_;
};

class BlockCompressionTest : public ::testing::TestWithParam<BlockFormat> {};

TEST_P(BlockCompressionTest, AllRanksMatchTheReferenceBitForBit) {
  const testing::OneBucket one({700, 290}, kCount);
  for (const int ranks : {1, 2, 3, 4, 7}) {
    SCOPED_TRACE(ranks);
    constexpr int kSteps = 4;
    Reference reference(GetParam(), ranks);
    std::vector<Values> wanted;
    for (int step = 0; step < kSteps; ++step) wanted.push_back(reference.step(step));
    run_ranks(ranks, [&](const Job& job) {
      Communicator communicator = Communicator::init(job);
      BlockCompression hook(GetParam(), one.layout, one.specs);
      for (int step = 0; step < kSteps; ++step) {
        Values own;
        for (int64_t i = 0; i < kCount; ++i) own.push_back(gradient(job.rank, step, i));
        const Tensor gradients = tensor_at(own.data(), DType::f32, 1, kCount);
        hook.start(communicator, 0, gradients);
        hook.finish(0, gradients);
        EXPECT_EQ(own, wanted[static_cast<size_t>(step)]) << step;
      }
      // The state has a tensor of errors for each parameter.
      const std::vector<HookState> states = hook.states(communicator, DType::f32);
      ASSERT_EQ(states.size(), 2u);
      EXPECT_EQ(states[1].name, std::string(name(GetParam())) + ".error.b");
      for (int64_t i = 0; i < 290; ++i) {
        EXPECT_EQ(states[1].values.values<float>()[static_cast<size_t>(i)],
                  reference.error(job.rank, 700 + i));
      }
    });
  }
}

// No gradient is lost over the steps: the sum of all results is the sum of all gradients minus the
// stored errors.
TEST_P(BlockCompressionTest, LosesNothing) {
  constexpr int kRanks = 3;
  constexpr int kSteps = 20;
  Reference reference(GetParam(), kRanks);
  std::vector<double> results(kCount);
  std::vector<double> gradients(kCount);
  for (int step = 0; step < kSteps; ++step) {
    const Values result = reference.step(step);
    for (int64_t i = 0; i < kCount; ++i) {
      results[static_cast<size_t>(i)] += result[static_cast<size_t>(i)];
      for (int rank = 0; rank < kRanks; ++rank) {
        gradients[static_cast<size_t>(i)] += gradient(rank, step, i);
      }
    }
  }
  for (int64_t i = 0; i < kCount; ++i) {
    double remembered = 0;
    for (int rank = 0; rank < kRanks; ++rank) remembered += reference.error(rank, i);
    const auto at = static_cast<size_t>(i);
    EXPECT_NEAR(results[at] + remembered, gradients[at], 1e-3);
  }
}

TEST_P(BlockCompressionTest, StartsAgainAfterANaN) {
  const testing::OneBucket one({700, 290}, kCount);
  run_ranks(2, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    BlockCompression hook(GetParam(), one.layout, one.specs);
    Values own(kCount, 1.5f);
    const Tensor gradients = tensor_at(own.data(), DType::f32, 1, kCount);
    if (job.rank == 1) own[10] = std::numeric_limits<float>::quiet_NaN();
    hook.start(communicator, 0, gradients);
    hook.finish(0, gradients);
    EXPECT_TRUE(std::isnan(own[10]));
    std::ranges::fill(own, 1.5f);
    hook.start(communicator, 0, gradients);
    hook.finish(0, gradients);
    for (const float value : own) EXPECT_TRUE(std::isfinite(value));
  });
}

TEST_P(BlockCompressionTest, TakesFewBytes) {
  const testing::OneBucket one({700, 290}, kCount);
  const BlockCompression hook(GetParam(), one.layout, one.specs);
  Values own(kCount);
  EXPECT_EQ(hook.payload_bytes(0, tensor_at(own.data(), DType::f32, 1, kCount)),
            static_cast<int64_t>(bytes_of(GetParam(), kCount)));
}

TEST_P(BlockCompressionTest, RefusesF16) {
  const testing::OneBucket one({700, 290}, kCount);
  run_ranks(1, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    BlockCompression hook(GetParam(), one.layout, one.specs);
    EXPECT_THROW(hook.states(communicator, DType::f16), Error);
  });
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockCompressionTest,
                         ::testing::Values(BlockFormat::mx8, BlockFormat::mx4, BlockFormat::int8,
                                           BlockFormat::sign),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace tutti::training
