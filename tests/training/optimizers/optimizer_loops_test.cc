// Tests that results have the same bits with every instruction set, and at every position of an
// element in an array.
#include "training/optimizers/optimizer_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "training/core/random.h"
#include "training/optimizers/stochastic_rounding.h"

namespace tutti::training::optimizer_loops {
namespace {

constexpr int64_t kCount = 200;

// The four arrays that a loop may read and write. The last one holds averages of squares, which are
// not negative.
struct Arrays {
  std::vector<float> a, b, c, d;
  bool operator==(const Arrays& other) const {
    const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
      return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
    };
    return same(a, other.a) && same(b, other.b) && same(c, other.c) && same(d, other.d);
  }
};

Arrays example() {
  std::mt19937 random(1);
  const auto numbers = [&] {
    std::vector<float> floats(kCount);
    for (float& number : floats) {
      number = std::ldexp(static_cast<float>(static_cast<int32_t>(random())),
                          static_cast<int>(random() % 20) - 40);
    }
    return floats;
  };
  Arrays arrays{numbers(), numbers(), numbers(), numbers()};
  for (float& number : arrays.d) number *= number;
  return arrays;
}

using Loop = std::function<void(const Loops&, Arrays&, int64_t first, int64_t count)>;

constexpr SgdFactors kSgd{
    .gradient = 0.7f, .decay = 0.01f, .momentum = 0.9f, .rate = 0.3f, .nesterov = false};
constexpr SgdFactors kNesterov{
    .gradient = 0.7f, .decay = 0.01f, .momentum = 0.9f, .rate = 0.3f, .nesterov = true};
constexpr MomentFactors kMoments{.gradient = 0.7f,
                                 .one_minus_beta1 = 0.1f,
                                 .beta2 = 0.99f,
                                 .one_minus_beta2 = 0.01f,
                                 .correction1 = 0.19f,
                                 .root_correction2 = 0.141f,
                                 .epsilon = 1e-3f};

const std::vector<Loop>& all_loops() {
  static const std::vector<Loop> loops = {
      [](const Loops& l, Arrays& x, int64_t i, int64_t n) {
        l.sgd_plain(&x.a[i], &x.b[i], n, kSgd);
      },
      [](const Loops& l, Arrays& x, int64_t i, int64_t n) {
        l.sgd(&x.a[i], &x.b[i], &x.c[i], n, kSgd);
      },
      [](const Loops& l, Arrays& x, int64_t i, int64_t n) {
        l.sgd(&x.a[i], &x.b[i], &x.c[i], n, kNesterov);
      },
      [](const Loops& l, Arrays& x, int64_t i, int64_t n) {
        l.lars(&x.a[i], &x.b[i], &x.c[i], n, kSgd);
      },
      [](const Loops& l, Arrays& x, int64_t i, int64_t n) {
        l.adamw(&x.a[i], &x.b[i], &x.c[i], &x.d[i], n, kMoments, 0.999f, 0.1f);
      },
      [](const Loops& l, Arrays& x, int64_t i, int64_t n) {
        l.moments(&x.b[i], &x.c[i], &x.d[i], n, kMoments);
      },
      [](const Loops& l, Arrays& x, int64_t i, int64_t n) {
        l.lamb_direction(&x.a[i], &x.c[i], &x.d[i], &x.b[i], n, kMoments, 0.01f);
      },
      [](const Loops& l, Arrays& x, int64_t i, int64_t n) { l.descend(&x.a[i], &x.b[i], n, 0.1f); },
  };
  return loops;
}

class OptimizerLoopsTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "not on this processor: " << name(GetParam());
  }
  const Loops& loops_here() const { return loops(GetParam()); }
};

TEST_P(OptimizerLoopsTest, UpdatesHaveTheSameBitsAsOneElementAtATime) {
  for (size_t which = 0; which < all_loops().size(); ++which) {
    const Loop& loop = all_loops()[which];
    Arrays expected = example();
    for (int64_t i = 0; i < kCount; ++i) loop(loops(InstructionSet::baseline), expected, i, 1);
    EXPECT_FALSE(expected == example());
    for (const int64_t cut : {0, 1, 7, 32, 45, 100, 199}) {
      Arrays arrays = example();
      loop(loops_here(), arrays, 0, cut);
      loop(loops_here(), arrays, cut, kCount - cut);
      EXPECT_TRUE(arrays == expected) << "loop " << which << " cut at " << cut;
    }
  }
}

TEST_P(OptimizerLoopsTest, SquaresHaveTheSameBits) {
  const Arrays arrays = example();
  constexpr int64_t kBlocks = kCount / kSquaresBlock;
  std::vector<double> expected(kBlocks), sums(kBlocks);
  loops(InstructionSet::baseline).squares(arrays.a.data(), expected.data(), kBlocks);
  loops_here().squares(arrays.a.data(), sums.data(), kBlocks);
  EXPECT_EQ(sums, expected);
  double first = 0;
  for (int64_t i = 0; i < kSquaresBlock; ++i) first += std::pow(double{arrays.a[i]}, 2);
  EXPECT_NEAR(sums[0], first, 1e-14 * first);
}

TEST_P(OptimizerLoopsTest, RoundsStochasticallyByCounter) {
  const std::vector<float> values = example().a;
  for (const int64_t n : {1, 5, 31, 32, 100, 200}) {
    std::vector<uint16_t> rounded(static_cast<size_t>(n));
    loops_here().round_stochastically(values.data(), rounded.data(), n, 11, 12, 13);
    for (uint64_t i = 0; i < rounded.size(); ++i) {
      const uint64_t random = random_bits(11, 12, 13 + i) >> 48;
      ASSERT_EQ(rounded[i], round_to_bf16(values[i], static_cast<uint16_t>(random))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, OptimizerLoopsTest,
                         testing::ValuesIn(kAllInstructionSets),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace tutti::training::optimizer_loops
