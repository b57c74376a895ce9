// Tests the algorithms for all-gather and reduce-scatter: the proved grade of each, and the rounds
// and volume stated in its paper.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"
#include "tests/collectives/program_facts.h"

namespace tutti {
namespace {

constexpr int32_t kMaxRanks = 33;

int32_t log2_up(int32_t n) { return std::bit_width(static_cast<uint32_t>(n - 1)); }
bool is_power_of_two(int32_t n) { return std::has_single_bit(static_cast<uint32_t>(n)); }

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

  // Returns a shape for each group size that the algorithm supports (most algorithms ignore
  // groups).
  std::vector<Shape> shapes(int32_t ranks) const {
    std::vector<Shape> shapes;
    for (int32_t group = 1; group <= ranks; ++group) {
      const Shape shape{.ranks = ranks, .layout = Layout::equal(ranks, group)};
      if (algorithm().supports(shape).empty()) shapes.push_back(shape);
      if (algorithm().name != "hierarchical") break;
    }
    return shapes;
  }
};

INSTANTIATE_TEST_SUITE_P(Catalogue, GatherAlgorithm, testing::ValuesIn(algorithms()),
                         [](const testing::TestParamInfo<const Algorithm*>& test) {
                           return std::string(name(test.param->collective)) + "_" +
                                  test.param->name;
                         });

TEST_P(GatherAlgorithm, VerifiesWithTheGradeThatItClaims) {
  Grade lowest = Grade::canonical;
  for (int32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (const Shape& shape : shapes(ranks)) {
      const Verdict verdict = verify(algorithm(), shape);
      ASSERT_NE(verdict.grade, Grade::wrong)
          << ranks << " ranks, " << to_text(shape.layout) << ": " << verdict.problem;
      lowest = std::min(lowest, verdict.grade);
    }
  }
  EXPECT_EQ(name(lowest), name(algorithm().grade));
}

TEST_P(GatherAlgorithm, VerifiesForManyRanks) {
  for (const int32_t ranks : {48, 64, 100, 127, 128}) {
    for (const int32_t group : {1, 3, 8}) {
      const Shape shape{.ranks = ranks, .layout = Layout::equal(ranks, group)};
      if (!algorithm().supports(shape).empty()) continue;
      const Verdict verdict = verify(algorithm(), shape);
      EXPECT_GE(verdict.grade, algorithm().grade)
          << ranks << " ranks, " << to_text(shape.layout) << ": " << verdict.problem;
      if (algorithm().name != "hierarchical") break;
    }
  }
}

TEST_P(GatherAlgorithm, DeclaresItsLimitsExactly) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const Shape& shape : shapes(ranks)) {
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
}

TEST_P(GatherAlgorithm, OneRankOnlyCopies) {
  if (!algorithm().supports({}).empty()) return;  // hierarchical
  const std::vector<Program> programs = emit_all(algorithm(), {});
  ASSERT_EQ(programs[0].steps.size(), 1U);
  EXPECT_EQ(programs[0].steps[0].kind, StepKind::copy);
}

// ---- volume and rounds

// In every all-gather, each block comes to each rank once. In every reduce-scatter, each rank's
// contribution to each block leaves the rank once, as a part of some sum.
TEST_P(GatherAlgorithm, MovesTheLeastVolume) {
  const bool gathers = algorithm().collective == Collective::all_gather;
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const Shape& shape : shapes(ranks)) {
      for (const Program& program : emit_all(algorithm(), shape)) {
        ASSERT_EQ(gathers ? chunks_received(program) : chunks_sent(program), ranks - 1);
      }
    }
  }
}

const Algorithm& all_gather(std::string_view name) {
  return require_algorithm(Collective::all_gather, name);
}
const Algorithm& reduce_scatter(std::string_view name) {
  return require_algorithm(Collective::reduce_scatter, name);
}

TEST(GatherVolume, SymmetricAlgorithmsSendAndReceiveTheLeast) {
  const std::vector<const Algorithm*> alike = {
      &all_gather("all_pairs"),     &all_gather("ring"),          &all_gather("bruck"),
      &all_gather("pat"),           &reduce_scatter("all_pairs"), &reduce_scatter("ring"),
      &reduce_scatter("circulant"), &reduce_scatter("pat")};
  for (const Algorithm* algorithm : alike) {
    for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
      for (const Program& program : emit_all(*algorithm, {.ranks = ranks})) {
        ASSERT_EQ(chunks_sent(program), ranks - 1) << algorithm->name;
        ASSERT_EQ(chunks_received(program), ranks - 1) << algorithm->name;
      }
    }
  }
}

TEST(GatherRounds, AllPairsTakesOne) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    EXPECT_EQ(depth_of(all_gather("all_pairs"), {.ranks = ranks}), 1);
    EXPECT_EQ(depth_of(reduce_scatter("all_pairs"), {.ranks = ranks}), 1);
    for (const Program& program : emit_all(all_gather("all_pairs"), {.ranks = ranks})) {
      const auto sends = std::ranges::count(program.steps, StepKind::send, &Step::kind);
      EXPECT_EQ(sends, 1) << "its block is one message for all";
    }
  }
}

TEST(GatherRounds, RingTakesOneLessThanRanks) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    EXPECT_EQ(depth_of(all_gather("ring"), {.ranks = ranks}), ranks - 1);
    EXPECT_EQ(depth_of(reduce_scatter("ring"), {.ranks = ranks}), ranks - 1);
  }
}

TEST(GatherRounds, NeighbourExchangeTakesHalfAsManyAsRanks) {
  const Algorithm& algorithm = all_gather("neighbour_exchange");
  for (int32_t ranks = 2; ranks <= kMaxRanks; ranks += 2) {
    EXPECT_EQ(depth_of(algorithm, {.ranks = ranks}), ranks / 2);
    const std::vector<Program> programs = emit_all(algorithm, {.ranks = ranks});
    for (int32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(messages_sent(programs[rank]), ranks / 2);
      for (const int32_t target : targets_of(programs[rank])) {
        EXPECT_TRUE(target == (rank + 1) % ranks || rank == (target + 1) % ranks);
      }
    }
  }
  EXPECT_NE(algorithm.supports({.ranks = 7}), "");
}

// If p is not a power of two, some blocks take fewer hops than there are rounds.
TEST(GatherRounds, OtherAlgorithmsTakeLogarithmicallyMany) {
  const std::vector<const Algorithm*> logarithmic = {
      &all_gather("bruck"),         &all_gather("recursive_doubling"),
      &all_gather("pat"),           &reduce_scatter("recursive_halving"),
      &reduce_scatter("circulant"), &reduce_scatter("pat"),
  };
  for (const Algorithm* algorithm : logarithmic) {
    for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
      const int32_t depth = depth_of(*algorithm, {.ranks = ranks});
      EXPECT_LE(depth, log2_up(ranks)) << algorithm->name << ", " << ranks << " ranks";
      if (is_power_of_two(ranks)) {
        EXPECT_EQ(depth, log2_up(ranks)) << algorithm->name;
      }
    }
  }
}

TEST(GatherRounds, TakeOneMessageEachInBruckAndCirculant) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const Algorithm* algorithm : {&all_gather("bruck"), &reduce_scatter("circulant")}) {
      for (const Program& program : emit_all(*algorithm, {.ranks = ranks})) {
        EXPECT_EQ(messages_sent(program), log2_up(ranks)) << algorithm->name;
      }
    }
  }
}

TEST(GatherRounds, TakeOneMessageEachInRecursiveHalvingOfAPowerOfTwo) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ranks *= 2) {
    for (const Algorithm* algorithm :
         {&all_gather("recursive_doubling"), &reduce_scatter("recursive_halving")}) {
      for (const Program& program : emit_all(*algorithm, {.ranks = ranks})) {
        EXPECT_EQ(messages_sent(program), log2_up(ranks)) << algorithm->name;
      }
    }
  }
}

// ---- scratch

// Returns the number of scratch chunks that the program uses. Chunks that are declared but not used
// cost no memory.
int32_t scratch_touched(const Program& program) {
  std::set<int32_t> chunks;
  for (const Step& step : program.steps) {
    for (const RangeList* ranges : {&step.src, &step.src2, &step.dst}) {
      for (const ChunkRange& range : *ranges) {
        if (range.space != Space::scratch) continue;
        for (int32_t i = 0; i < range.count; ++i) chunks.insert(range.first + i);
      }
    }
  }
  return static_cast<int32_t>(chunks.size());
}

int32_t most_scratch_touched(const Algorithm& algorithm, int32_t ranks) {
  int32_t most = 0;
  for (const Program& program : emit_all(algorithm, {.ranks = ranks})) {
    most = std::max(most, scratch_touched(program));
  }
  return most;
}

TEST(GatherScratch, AllGatherNeedsNoScratch) {
  for (const Algorithm* algorithm : algorithms_for(Collective::all_gather)) {
    for (int32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
      if (!algorithm->supports({.ranks = ranks}).empty()) continue;
      for (const Program& program : emit_all(*algorithm, {.ranks = ranks})) {
        ASSERT_EQ(program.scratch_chunks, 0) << algorithm->name;
      }
    }
  }
}

// Scratch holds one partial sum per level of the canonical tree, or one per block that passes
// through, or half of the blocks. If p is not a power of two, recursive halving has one more, for
// the teams after the rank's own team.
TEST(GatherScratch, ReduceScatterHoldsNoMoreThanItsPartialSums) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const auto most = [&](std::string_view name) {
      return most_scratch_touched(reduce_scatter(name), ranks);
    };
    EXPECT_LE(most("all_pairs"), std::bit_width(static_cast<uint32_t>(ranks)) - 1) << ranks;
    EXPECT_EQ(most("ring"), ranks - 2) << ranks;
    const int32_t half = ranks > 2 ? ranks / 2 : 0;
    EXPECT_EQ(most("circulant"), half) << ranks;
    EXPECT_EQ(most("pat"), half) << ranks;
    if (is_power_of_two(ranks)) {
      EXPECT_EQ(most("recursive_halving"), half) << ranks;
    } else {
      EXPECT_LE(most("recursive_halving"), (ranks + 1) / 2 + 1) << ranks;
    }
  }
}

// ---- PAT

// Returns, for each distance, the number of blocks that ranks send over it.
std::map<int32_t, int32_t> blocks_by_distance(const Algorithm& algorithm, int32_t ranks) {
  const bool gathers = algorithm.collective == Collective::all_gather;
  const std::vector<Program> programs = emit_all(algorithm, {.ranks = ranks});
  std::map<int32_t, int32_t> blocks;
  for (const Step& step : programs[0].steps) {
    if (step.kind != StepKind::send) continue;
    const int32_t peer = step.peers[0];
    blocks[gathers ? peer : ranks - peer] += chunks_in(step.src);
  }
  return blocks;
}

TEST(Pat, SendsFewBlocksFarAndManyToTheNeighbour) {
  for (const Algorithm* pat : {&all_gather("pat"), &reduce_scatter("pat")}) {
    const std::map<int32_t, int32_t> expected = {{32, 1}, {16, 2}, {8, 4},
                                                 {4, 8},  {2, 16}, {1, 32}};
    EXPECT_EQ(blocks_by_distance(*pat, 64), expected);
    const std::map<int32_t, int32_t> of_seven = {{4, 1}, {2, 2}, {1, 3}};
    EXPECT_EQ(blocks_by_distance(*pat, 7), of_seven);
  }
}

// A rank sends log2 a + p/a - 1 messages of at most `a` blocks each.
TEST(Pat, BoundsTheBlocksInAMessage) {
  for (const Algorithm* pat : {&all_gather("pat"), &reduce_scatter("pat")}) {
    for (const int32_t ranks : {2, 4, 8, 16, 32, 64, 128}) {
      const std::vector<Program> programs = emit_all(*pat, {.ranks = ranks});
      const int32_t most = std::min(8, ranks / 2);
      EXPECT_EQ(programs[0].chunks_per_message, most);
      EXPECT_EQ(messages_sent(programs[0]), log2_up(most) + ranks / most - 1);
    }
  }
}

// ---- grades

TEST(ReduceScatterCatalogue, OffersACanonicalAlgorithmOfFewRoundsForAnyNumberOfRanks) {
  for (int32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (const std::string_view name : {"all_pairs", "recursive_halving"}) {
      EXPECT_EQ(reduce_scatter(name).supports({.ranks = ranks}), "");
      EXPECT_EQ(reduce_scatter(name).grade, Grade::canonical);
    }
  }
}

// Only inputs are sent, so that a reduction in float does not increase the volume.
TEST(ReduceScatterCatalogue, AllPairsSendsElementsOnly) {
  for (const Program& program : emit_all(reduce_scatter("all_pairs"), {.ranks = 13})) {
    for (const Step& step : program.steps) EXPECT_EQ(step.wire, Wire::element);
  }
}

}  // namespace
}  // namespace tutti
