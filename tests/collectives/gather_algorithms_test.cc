// All-gather and reduce-scatter: what verify proves of each algorithm, and what its paper says of
// rounds and volume.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/verify.h"
#include "tests/collectives/program_facts.h"

namespace tutti {
namespace {

constexpr int32_t kMaxRanks = 33;

std::vector<const Algorithm*> algorithms() {
  std::vector<const Algorithm*> all = algorithms_for(Collective::all_gather);
  const std::vector<const Algorithm*> more = algorithms_for(Collective::reduce_scatter);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// ---- proofs

class GatherAlgorithm : public testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& algorithm() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Catalogue, GatherAlgorithm, testing::ValuesIn(algorithms()),
                         [](const testing::TestParamInfo<const Algorithm*>& test) {
                           return std::string(name(test.param->collective)) + "_" +
                                  test.param->name;
                         });

TEST_P(GatherAlgorithm, IsProvedWithTheGradeThatItClaims) {
  Grade lowest = Grade::canonical;
  for (int32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    const Shape shape{.ranks = ranks};
    if (!algorithm().supports(shape).empty()) continue;
    const Verdict verdict = verify(algorithm(), shape);
    ASSERT_NE(verdict.grade, Grade::wrong) << ranks << " ranks: " << verdict.problem;
    lowest = std::min(lowest, verdict.grade);
  }
  EXPECT_EQ(name(lowest), name(algorithm().grade));
}

TEST_P(GatherAlgorithm, IsProvedForManyRanks) {
  for (const int32_t ranks : {48, 64, 100, 127, 128}) {
    const Shape shape{.ranks = ranks};
    if (!algorithm().supports(shape).empty()) continue;
    const Verdict verdict = verify(algorithm(), shape);
    EXPECT_GE(verdict.grade, algorithm().grade) << ranks << " ranks: " << verdict.problem;
  }
}

TEST_P(GatherAlgorithm, DeclaresItsLimitsExactly) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const Shape shape{.ranks = ranks};
    if (!algorithm().supports(shape).empty()) continue;
    size_t fan_out = 0;
    int32_t chunks = 1;
    const std::vector<Program> programs = emit_all(algorithm(), shape);
    for (const Program& program : programs) {
      fan_out = std::max(fan_out, targets_of(program).size());
      for (const Step& step : program.steps) {
        if (step.kind == StepKind::send) chunks = std::max(chunks, chunks_in(step.src));
      }
    }
    ASSERT_EQ(programs[0].fan_out, static_cast<int32_t>(fan_out)) << ranks << " ranks";
    ASSERT_EQ(programs[0].chunks_per_message, chunks) << ranks << " ranks";
  }
}

TEST_P(GatherAlgorithm, OfOneRankOnlyCopies) {
  const std::vector<Program> programs = emit_all(algorithm(), {});
  ASSERT_EQ(programs[0].steps.size(), 1U);
  EXPECT_EQ(programs[0].steps[0].kind, StepKind::copy);
}

// ---- volume and rounds

// What all of them have in common. An all-gather brings every block to every rank once; a
// reduce-scatter takes every block from every rank once, as a part of some sum.
TEST_P(GatherAlgorithm, MovesTheLeastVolume) {
  const bool gathers = algorithm().collective == Collective::all_gather;
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const Shape shape{.ranks = ranks};
    if (!algorithm().supports(shape).empty()) continue;
    for (const Program& program : emit_all(algorithm(), shape)) {
      ASSERT_EQ(gathers ? chunks_received(program) : chunks_sent(program), ranks - 1);
    }
  }
}

}  // namespace
}  // namespace tutti
