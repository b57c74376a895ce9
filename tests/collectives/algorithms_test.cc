// Tests the catalogue and the algorithms for all_reduce: the proved grade of each, and the rounds
// and volume stated in its paper.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"
#include "tests/collectives/program_facts.h"

namespace tutti {
namespace {

constexpr int32_t kMaxRanks = 33;

int32_t log2_down(int32_t n) { return std::bit_width(static_cast<uint32_t>(n)) - 1; }
int32_t log2_up(int32_t n) { return std::bit_width(static_cast<uint32_t>(n - 1)); }
bool is_power_of_two(int32_t n) { return std::has_single_bit(static_cast<uint32_t>(n)); }

int32_t log_up(int32_t radix, int32_t n) {
  int32_t rounds = 0;
  for (int64_t covered = 1; covered < n; covered *= radix) ++rounds;
  return rounds;
}
bool is_power_of(int32_t radix, int32_t n) {
  while (n % radix == 0) n /= radix;
  return n == 1;
}

std::vector<Program> programs_of(std::string_view name, int32_t ranks) {
  return emit_all(require_algorithm(Collective::all_reduce, name), {.ranks = ranks});
}

int32_t depth_of(std::string_view name, int32_t ranks) {
  return depth_of(require_algorithm(Collective::all_reduce, name), {.ranks = ranks});
}

// ---- the catalogue

TEST(Catalogue, NamesAndNumbersAreUnique) {
  std::set<uint16_t> ids;
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_EQ(find_algorithm(algorithm->collective, algorithm->name), algorithm);
    EXPECT_EQ(find_algorithm(algorithm->id), algorithm);
    EXPECT_LT(algorithm->id, uint64_t{1} << kAlgorithmIdBits);
    EXPECT_TRUE(ids.insert(algorithm->id).second) << algorithm->name;
    EXPECT_NE(algorithm->source, "") << algorithm->name;
  }
}

TEST(Catalogue, AnUnknownNameListsTheOthers) {
  EXPECT_EQ(find_algorithm(Collective::all_reduce, "rign"), nullptr);
  EXPECT_EQ(find_algorithm(Collective::all_reduce, "dissemination"), nullptr);
  try {
    require_algorithm(Collective::all_reduce, "rign");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), testing::HasSubstr("\"rign\""));
    for (const Algorithm* algorithm : algorithms_for(Collective::all_reduce)) {
      EXPECT_THAT(error.what(), testing::HasSubstr(algorithm->name));
    }
  }
}

// ---- proofs

class AllReduce : public testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& algorithm() const { return *GetParam(); }

  // Returns a shape for each group size that the algorithm supports (most algorithms ignore
  // groups).
  std::vector<Shape> shapes(int32_t ranks) const {
    std::vector<Shape> shapes;
    for (int32_t group = 1; group <= ranks; ++group) {
      const Shape shape{.ranks = ranks, .layout = Layout::equal(ranks, group)};
      if (ranks % group == 0 && algorithm().supports(shape).empty()) shapes.push_back(shape);
      if (!algorithm().name.starts_with("hierarchical")) break;
    }
    return shapes;
  }
};

INSTANTIATE_TEST_SUITE_P(Catalogue, AllReduce,
                         testing::ValuesIn(algorithms_for(Collective::all_reduce)),
                         [](const testing::TestParamInfo<const Algorithm*>& test) {
                           return test.param->name;
                         });

TEST_P(AllReduce, HasTheGradeThatItClaims) {
  Grade lowest = Grade::canonical;
  for (int32_t ranks = 1; ranks <= 64; ++ranks) {
    for (const Shape& shape : shapes(ranks)) {
      const Verdict verdict = verify(algorithm(), shape);
      ASSERT_NE(verdict.grade, Grade::wrong)
          << ranks << " ranks, " << to_text(shape.layout) << ": " << verdict.problem;
      lowest = std::min(lowest, verdict.grade);
    }
  }
  EXPECT_EQ(name(lowest), name(algorithm().grade));
}

TEST_P(AllReduce, VerifiesForManyRanks) {
  for (const int32_t ranks : {100, 127, 128}) {
    for (const Shape& shape : shapes(ranks)) {
      const Verdict verdict = verify(algorithm(), shape);
      EXPECT_GE(verdict.grade, algorithm().grade)
          << ranks << " ranks, " << to_text(shape.layout) << ": " << verdict.problem;
    }
  }
}

TEST_P(AllReduce, DeclaresItsLimitsExactly) {
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

TEST_P(AllReduce, OneRankOnlyCopies) {
  if (!algorithm().supports({}).empty()) return;  // hierarchical
  const std::vector<Program> programs = emit_all(algorithm(), {});
  ASSERT_EQ(programs[0].steps.size(), 1U);
  EXPECT_EQ(programs[0].steps[0].kind, StepKind::copy);
}

// To be rounded only once, partial sums must be sent unrounded, and complete sums as elements.
TEST_P(AllReduce, SendsCompleteSumsAsElements) {
  for (const Shape& shape : shapes(12)) {
    for (const Program& program : emit_all(algorithm(), shape)) {
      for (const Step& step : program.steps) {
        if (step.kind != StepKind::send || step.wire == Wire::element) continue;
        for (const ChunkRange& range : step.src) EXPECT_EQ(range.space, Space::scratch);
      }
    }
  }
}

// ---- figures of the literature

TEST(AllPairs, OneShotIsOneRoundOfEverythingToEveryone) {
  for (const char* name : {"naive", "one_shot"}) {
    for (int32_t p = 2; p <= kMaxRanks; ++p) {
      EXPECT_EQ(messages_sent(programs_of(name, p)), p * (p - 1));
      EXPECT_EQ(depth_of(name, p), 1);
    }
  }
  EXPECT_EQ(programs_of("naive", 16)[0].scratch_chunks, 16);
  EXPECT_EQ(programs_of("one_shot", 16)[0].scratch_chunks, 4);
}

TEST(AllPairs, TwoShotIsTwoRoundsOfTheLeastVolume) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    for (const Program& program : programs_of("two_shot", p)) {
      EXPECT_EQ(program.input_chunks, p);
      EXPECT_EQ(chunks_sent(program), 2 * (p - 1));
      EXPECT_EQ(chunks_received(program), 2 * (p - 1));
      for (const Step& step : program.steps) EXPECT_EQ(step.wire, Wire::element);
    }
    EXPECT_EQ(depth_of("two_shot", p), 2);
  }
}

TEST(ParameterServer, AllDataPassesThroughTheManager) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    const std::vector<Program> programs = programs_of("parameter_server", p);
    for (int32_t rank = 1; rank < p; ++rank) {
      EXPECT_EQ(messages_sent(programs[rank]), 1);
      for (const Step& step : programs[rank].steps) {
        EXPECT_EQ(step.peers, std::vector<int32_t>{0});
      }
    }
    EXPECT_EQ(messages_sent(programs[0]), p - 1);
    EXPECT_EQ(depth_of("parameter_server", p), 2);
  }
}

TEST(Ring, EveryRankSendsTheLeastVolumeToItsNeighbour) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    const std::vector<Program> programs = programs_of("ring", p);
    for (int32_t rank = 0; rank < p; ++rank) {
      EXPECT_EQ(programs[rank].input_chunks, p);
      EXPECT_EQ(chunks_sent(programs[rank]), 2 * (p - 1));
      EXPECT_EQ(messages_sent(programs[rank]), 2 * (p - 1));
      EXPECT_EQ(targets_of(programs[rank]), std::set<int32_t>{(rank + 1) % p});
    }
    EXPECT_EQ(depth_of("ring", p), 2 * (p - 1));
  }
}

TEST(Ring, BothDirectionsHalveTheVolumeOfEach) {
  for (int32_t p = 3; p <= kMaxRanks; ++p) {
    const std::vector<Program> programs = programs_of("ring_bidirectional", p);
    for (int32_t rank = 0; rank < p; ++rank) {
      EXPECT_EQ(programs[rank].input_chunks, 2 * p);
      std::map<int32_t, int32_t> sent;  // peer -> number of chunks
      for (const Step& step : programs[rank].steps) {
        if (step.kind == StepKind::send) sent[step.peers[0]] += chunks_in(step.src);
      }
      EXPECT_THAT(sent,
                  testing::UnorderedElementsAre(testing::Pair((rank + 1) % p, 2 * (p - 1)),
                                                testing::Pair((rank + p - 1) % p, 2 * (p - 1))));
    }
    EXPECT_EQ(depth_of("ring_bidirectional", p), 2 * (p - 1));
  }
}

TEST(TorusBucket, TakesTheVolumeOfTheRingInFewerRounds) {
  for (const auto& [p, rows, columns] :
       std::vector<std::array<int32_t, 3>>{{4, 2, 2}, {12, 3, 4}, {16, 4, 4}, {22, 2, 11}}) {
    for (const Program& program : programs_of("torus_bucket", p)) {
      EXPECT_EQ(program.input_chunks, p);
      EXPECT_EQ(chunks_sent(program), 2 * (p - 1));
      EXPECT_EQ(targets_of(program).size(), 2U);
    }
    EXPECT_EQ(depth_of("torus_bucket", p), 2 * (rows + columns - 2));
  }
  EXPECT_EQ(require_algorithm(Collective::all_reduce, "torus_bucket").supports({.ranks = 13}),
            "a prime number of ranks does not form a torus");
}

TEST(DoubleBinaryTree, TwoShallowTreesHaveDifferentInnerNodes) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    const std::vector<Program> programs = programs_of("double_binary_tree", p);
    for (const Program& program : programs) {
      EXPECT_EQ(program.input_chunks, 2);
      std::map<int32_t, int32_t> children;  // chunk, and therefore tree -> number of children
      for (const Step& step : program.steps) {
        if (step.kind == StepKind::recv_reduce) ++children[step.dst[0].first];
      }
      EXPECT_LE(children.size(), 1U) << p << " ranks";
      for (const auto& [tree, count] : children) EXPECT_LE(count, 2);
    }
    EXPECT_EQ(messages_sent(programs), 2 * 2 * (p - 1));  // two trees, two directions, p - 1 edges
    EXPECT_EQ(depth_of("double_binary_tree", p), 2 * log2_down(p));
  }
}

TEST(Knomial, HasTheFewestMessages) {
  for (const int32_t radix : {4, 8}) {
    const std::string name = "knomial_" + std::to_string(radix);
    for (int32_t p = 2; p <= 64; ++p) {
      EXPECT_EQ(messages_sent(programs_of(name, p)), 2 * (p - 1));
      EXPECT_LE(depth_of(name, p), 2 * log_up(radix, p));
      if (is_power_of(radix, p)) {
        EXPECT_EQ(depth_of(name, p), 2 * log_up(radix, p));
      }
    }
  }
}

TEST(RecursiveMultiplying, TakesTheFewestRoundsForAnyNumberOfRanks) {
  for (const auto& [name, radix] : std::map<std::string, int32_t>{{"recursive_doubling", 2},
                                                                  {"recursive_multiplying_3", 3},
                                                                  {"recursive_multiplying_4", 4},
                                                                  {"recursive_multiplying_8", 8}}) {
    for (int32_t p = 2; p <= 64; ++p) {
      const int32_t rounds = log_up(radix, p);
      EXPECT_EQ(depth_of(name, p), rounds) << name << ", " << p << " ranks";
      if (!is_power_of(radix, p)) continue;
      for (const Program& program : programs_of(name, p)) {
        EXPECT_EQ(messages_sent(program), (radix - 1) * rounds);
      }
    }
  }
}

TEST(HalvingDoubling, TakesTheLeastVolumeInLogarithmicallyManyRounds) {
  for (int32_t p = 2; p <= 64; ++p) {
    const std::vector<Program> programs = programs_of("halving_doubling", p);
    for (const Program& program : programs) {
      const int32_t chunks = program.input_chunks;
      EXPECT_EQ(chunks, 1 << log2_down(p));
      if (is_power_of_two(p)) {
        EXPECT_EQ(chunks_sent(program), 2 * (p - 1));
        EXPECT_EQ(messages_sent(program), 2 * log2_up(p));
      } else {
        // In the largest team, a rank sends one complete part to each of the other teams.
        const int32_t teams = std::popcount(static_cast<uint32_t>(p));
        EXPECT_LE(chunks_sent(program), std::max(2 * chunks, 2 * (chunks - 1) + teams - 1));
      }
    }
    EXPECT_EQ(depth_of("halving_doubling", p), 2 * log2_down(p)) << p << " ranks";
  }
}

TEST(Circulant, TakesTheFewestRoundsAndTheLeastVolume) {
  for (int32_t p = 2; p <= 64; ++p) {
    for (const Program& program : programs_of("circulant", p)) {
      EXPECT_EQ(program.input_chunks, p);
      EXPECT_EQ(chunks_sent(program), 2 * (p - 1));
      EXPECT_EQ(chunks_received(program), 2 * (p - 1));
      EXPECT_EQ(messages_sent(program), 2 * log2_up(p));
    }
    // If p is not a power of two, rounds may send inputs, which do not depend on other messages.
    EXPECT_LE(depth_of("circulant", p), 2 * log2_up(p));
    if (is_power_of_two(p)) {
      EXPECT_EQ(depth_of("circulant", p), 2 * log2_up(p));
    }
  }
}

TEST(Swing, TakesTheLeastVolumeInLogarithmicallyManyRounds) {
  for (int32_t p = 2; p <= 64; p += 2) {
    for (const Program& program : programs_of("swing", p)) {
      EXPECT_EQ(chunks_sent(program), 2 * (p - 1));
      EXPECT_EQ(messages_sent(program), 2 * log2_up(p));
      for (const Step& step : program.steps) {
        if (is_power_of_two(p)) {
          EXPECT_LE(step.src.size(), 1U);
        }
      }
    }
    EXPECT_LE(depth_of("swing", p), 2 * log2_up(p));
    if (is_power_of_two(p)) {
      EXPECT_EQ(depth_of("swing", p), 2 * log2_up(p));
    }
  }
  EXPECT_NE(require_algorithm(Collective::all_reduce, "swing").supports({.ranks = 7}), "");
}

TEST(Swing, PartnersAlternateBetweenSides) {
  const std::vector<Program> programs = programs_of("swing", 64);
  for (const int32_t rank : {0, 6, 7}) {
    std::vector<int32_t> distances;
    for (const Step& step : programs[rank].steps) {
      if (step.kind != StepKind::send || distances.size() == 6) continue;
      const int32_t up = (step.peers[0] - rank + 64) % 64;
      distances.push_back(up < 32 ? up : up - 64);
    }
    const int32_t side = rank % 2 == 0 ? 1 : -1;
    EXPECT_THAT(distances,
                testing::ElementsAre(side, -side, 3 * side, -5 * side, 11 * side, -21 * side));
  }
}

}  // namespace
}  // namespace tutti
