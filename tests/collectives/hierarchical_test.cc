// Tests the all-reduce that consists of three other algorithms of the catalogue.
#include "collectives/algorithms/hierarchical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"
#include "tests/collectives/program_facts.h"

namespace tutti {
namespace {

const Algorithm& all_reduce(std::string_view name) {
  return require_algorithm(Collective::all_reduce, name);
}
const Algorithm& all_gather(std::string_view name) {
  return require_algorithm(Collective::all_gather, name);
}

Algorithm canonical_reduce_scatter() {
  return require_algorithm(Collective::reduce_scatter, "all_pairs");
}

// Returns the canonical reduce-scatter, but with a lower grade, so that sums are rounded after the
// first phase.
Algorithm rounding_reduce_scatter() {
  Algorithm algorithm = canonical_reduce_scatter();
  algorithm.grade = Grade::same_bits;
  return algorithm;
}

// Returns the lowest grade over all supported numbers of ranks and groups. `shapes` receives the
// number of these shapes.
Grade lowest_grade(const Algorithm& algorithm, int32_t max_ranks, int32_t& shapes) {
  Grade lowest = Grade::canonical;
  for (int32_t ranks = 1; ranks <= max_ranks; ++ranks) {
    for (int32_t group = 1; group <= ranks; ++group) {
      const Shape shape{.ranks = ranks, .layout = Layout::equal(ranks, group)};
      if (ranks % group != 0 || !algorithm.supports(shape).empty()) continue;
      const Verdict verdict = verify(algorithm, shape);
      EXPECT_EQ(verdict.problem, "")
          << algorithm.name << ", " << ranks << " ranks, groups of " << group;
      if (ranks <= 16) {
        for (const Arithmetic arithmetic : {Arithmetic::means, Arithmetic::scaled}) {
          const Verdict with = verify(algorithm, shape, arithmetic);
          EXPECT_EQ(with.problem, "")
              << algorithm.name << ", " << ranks << " in groups of " << group;
          EXPECT_EQ(with.grade, verdict.grade) << algorithm.name;
        }
      }
      lowest = std::min(lowest, verdict.grade);
      ++shapes;
    }
  }
  return lowest;
}

void expect_its_grade(const Algorithm& algorithm, int32_t max_ranks = 33) {
  int32_t shapes = 0;
  EXPECT_EQ(name(lowest_grade(algorithm, max_ranks, shapes)), name(algorithm.grade))
      << algorithm.name;
  EXPECT_GT(shapes, 4) << algorithm.name;
}

TEST(Hierarchical, AnyReduceScatterComposes) {
  for (const Algorithm* inner : algorithms_for(Collective::reduce_scatter)) {
    if (inner->name == "hierarchical") continue;  // a group has no groups of its own
    expect_its_grade(
        compose_hierarchical(*inner, all_reduce("recursive_doubling"), all_gather("ring")));
  }
}

TEST(Hierarchical, AnyAllReduceComposes) {
  for (const Algorithm* inner : algorithms_for(Collective::all_reduce)) {
    if (inner->name.starts_with("hierarchical")) continue;
    const Algorithm composed =
        compose_hierarchical(canonical_reduce_scatter(), *inner, all_gather("ring"));
    EXPECT_EQ(composed.grade, inner->grade);
    expect_its_grade(composed);
  }
}

TEST(Hierarchical, AnyAllGatherComposes) {
  for (const Algorithm* inner : algorithms_for(Collective::all_gather)) {
    if (inner->name == "hierarchical") continue;  // a group has no groups of its own
    expect_its_grade(
        compose_hierarchical(rounding_reduce_scatter(), all_reduce("two_shot"), *inner));
  }
}

TEST(Hierarchical, SendsOnlyItsPartToOtherHosts) {
  for (const Shape& shape : {Shape{.ranks = 6, .layout = Layout::equal(6, 2)},
                             Shape{.ranks = 24, .layout = Layout::equal(24, 8)}}) {
    const int32_t group = shape.layout.smallest(0);
    const int32_t hosts = shape.ranks / group;
    const Algorithm composed =
        compose_hierarchical(rounding_reduce_scatter(), all_reduce("ring"), all_gather("ring"));
    const std::vector<Program> programs = emit_all(composed, shape);
    for (int32_t rank = 0; rank < shape.ranks; ++rank) {
      int32_t outside = 0;
      int32_t inside = 0;
      for (const Step& step : programs[rank].steps) {
        if (step.kind != StepKind::send) continue;
        const bool same_host = step.peers[0] / group == rank / group;
        (same_host ? inside : outside) += chunks_in(step.src);
        if (!same_host) {
          EXPECT_EQ(step.peers[0] % group, rank % group);
        }
      }
      EXPECT_EQ(programs[rank].input_chunks, shape.ranks);
      EXPECT_EQ(outside, 2 * (hosts - 1));
      EXPECT_EQ(inside, 2 * (group - 1) * hosts);
    }
    EXPECT_EQ(depth_of(composed, shape), 1 + 2 * (hosts - 1) + group - 1);
  }
}

TEST(Hierarchical, DeclaresItsLimitsExactly) {
  for (const Algorithm* inner : algorithms_for(Collective::all_gather)) {
    const Algorithm composed = compose_hierarchical(rounding_reduce_scatter(),
                                                    all_reduce("recursive_multiplying_4"), *inner);
    for (const Shape& shape : {Shape{.ranks = 12, .layout = Layout::equal(12, 4)},
                               Shape{.ranks = 30, .layout = Layout::equal(30, 2)}}) {
      if (!composed.supports(shape).empty()) continue;
      size_t fan_out = 0;
      int32_t chunks = 1;
      const std::vector<Program> programs = emit_all(composed, shape);
      for (const Program& program : programs) {
        fan_out = std::max(fan_out, targets_of(program).size());
        for (const Step& step : program.steps) {
          if (step.kind == StepKind::send) chunks = std::max(chunks, chunks_in(step.src));
        }
      }
      EXPECT_EQ(programs[0].fan_out, static_cast<int32_t>(fan_out)) << composed.name;
      EXPECT_EQ(programs[0].chunks_per_message, chunks) << composed.name;
    }
  }
}

TEST(Hierarchical, NamesTheLimitsOfAnAlgorithm) {
  const Algorithm of_rings =
      compose_hierarchical(rounding_reduce_scatter(), all_reduce("ring"), all_gather("ring"));
  for (const Shape& shape : {Shape{.ranks = 1}, Shape{.ranks = 8, .layout = Layout::equal(8, 1)},
                             Shape{.ranks = 8, .layout = Layout::equal(8, 8)}}) {
    EXPECT_THAT(of_rings.supports(shape), testing::HasSubstr("several hosts"));
  }
  EXPECT_EQ(of_rings.supports({.ranks = 9, .layout = Layout::equal(9, 3)}), "");
  const Algorithm canonical =
      compose_hierarchical(canonical_reduce_scatter(), all_reduce("two_shot"), all_gather("ring"));
  EXPECT_THAT(canonical.supports({.ranks = 9, .layout = Layout::equal(9, 3)}),
              testing::HasSubstr("power-of-two"));
  const Algorithm swing =
      compose_hierarchical(rounding_reduce_scatter(), all_reduce("swing"), all_gather("ring"));
  EXPECT_THAT(swing.supports({.ranks = 6, .layout = Layout::equal(6, 2)}),
              testing::AllOf(testing::HasSubstr("all_reduce swing among 3"),
                             testing::HasSubstr("even number")));
}

TEST(Hierarchical, TakesEachKindOfAlgorithmInItsPlace) {
  EXPECT_THROW(compose_hierarchical(all_gather("ring"), all_reduce("ring"), all_gather("ring")),
               Error);
  EXPECT_THROW(compose_hierarchical(canonical_reduce_scatter(), canonical_reduce_scatter(),
                                    all_gather("ring")),
               Error);
}

TEST(Hierarchical, IsFoundByItsName) {
  constexpr std::string_view kName = "hierarchical(ring,circulant,ring)";
  EXPECT_EQ(find_algorithm(Collective::all_reduce, kName), nullptr);
  const Algorithm* composed = parse_hierarchical(kName);
  ASSERT_NE(composed, nullptr);
  EXPECT_EQ(composed->name, kName);
  EXPECT_EQ(composed->id, id_of(Collective::all_reduce, kName));
  EXPECT_EQ(parse_hierarchical(kName), composed);
  EXPECT_EQ(find_algorithm(Collective::all_reduce, kName), composed);
  EXPECT_EQ(find_algorithm(composed->id), composed);
}

TEST(Hierarchical, OtherNamesAreNotItsOwn) {
  for (const char* name : {"ring", "hierarchical", "hierarchical(ring,ring)", "hierarchical(",
                           "hierarchical(ring,ring,ring,ring)", "hierarchical(ring,ring,ring"}) {
    EXPECT_EQ(parse_hierarchical(name), nullptr) << name;
  }
  try {
    parse_hierarchical("hierarchical(ring,rign,ring)");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no all_reduce algorithm named \"rign\""));
  }
}

}  // namespace
}  // namespace tutti
