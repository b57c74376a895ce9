// Tests the algorithms for broadcast, reduce, gather, scatter, all_to_all, scan, exscan and
// barrier: the proved grade of each, and the rounds and volume stated in its paper.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"
#include "tests/collectives/program_facts.h"

namespace tutti {
namespace {

constexpr int32_t kMaxRanks = 33;

int32_t log2_down(int32_t n) { return std::bit_width(static_cast<uint32_t>(n)) - 1; }
int32_t log2_up(int32_t n) { return std::bit_width(static_cast<uint32_t>(n - 1)); }

int32_t log_up(int32_t radix, int32_t n) {
  int32_t rounds = 0;
  for (int64_t covered = 1; covered < n; covered *= radix) ++rounds;
  return rounds;
}

constexpr Collective kCollectives[] = {
    Collective::broadcast,  Collective::reduce, Collective::gather, Collective::scatter,
    Collective::all_to_all, Collective::scan,   Collective::exscan, Collective::barrier};

std::vector<const Algorithm*> algorithms() {
  std::vector<const Algorithm*> all;
  for (const Collective collective : kCollectives) {
    const std::vector<const Algorithm*> some = algorithms_for(collective);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// Returns a shape for every root, and for every group size that the algorithm supports and that
// changes its program.
std::vector<Shape> shapes_of(const Algorithm& algorithm, int32_t ranks) {
  std::vector<Shape> shapes;
  const int32_t roots = has_root(algorithm.collective) ? ranks : 1;
  for (int32_t root = 0; root < roots; ++root) {
    for (int32_t group = 1; group <= ranks; ++group) {
      const Shape shape{.ranks = ranks, .root = root, .layout = Layout::equal(ranks, group)};
      if (algorithm.supports(shape).empty()) shapes.push_back(shape);
      if (!algorithm.name.starts_with("hierarchical")) break;
    }
  }
  return shapes;
}

std::string text(const Shape& shape) {
  return std::to_string(shape.ranks) + " ranks, root " + std::to_string(shape.root) + ", " +
         to_text(shape.layout);
}

int32_t depth_of(Collective collective, std::string_view name, int32_t ranks, int32_t root = 0) {
  return depth_of(require_algorithm(collective, name), {.ranks = ranks, .root = root});
}

std::vector<Program> programs_of(Collective collective, std::string_view name, int32_t ranks,
                                 int32_t root = 0) {
  return emit_all(require_algorithm(collective, name), {.ranks = ranks, .root = root});
}

// ---- proofs

class RootedAlgorithm : public testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& algorithm() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Catalogue, RootedAlgorithm, testing::ValuesIn(algorithms()),
                         [](const testing::TestParamInfo<const Algorithm*>& test) {
                           return std::string(name(test.param->collective)) + "_" +
                                  test.param->name;
                         });

TEST_P(RootedAlgorithm, VerifiesWithTheGradeThatItClaims) {
  Grade lowest = Grade::canonical;
  for (int32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (const Shape& shape : shapes_of(algorithm(), ranks)) {
      const Verdict verdict = verify(algorithm(), shape);
      ASSERT_NE(verdict.grade, Grade::wrong) << text(shape) << ": " << verdict.problem;
      lowest = std::min(lowest, verdict.grade);
    }
  }
  EXPECT_EQ(name(lowest), name(algorithm().grade));
}

TEST_P(RootedAlgorithm, VerifiesForSomeRootsOfManyRanks) {
  for (const int32_t ranks : {48, 64, 100, 128}) {
    for (Shape shape :
         {Shape{.ranks = ranks, .root = 0, .layout = Layout::equal(ranks, 4)},
          Shape{.ranks = ranks, .root = ranks / 2 + 1, .layout = Layout::equal(ranks, ranks / 2)},
          Shape{.ranks = ranks, .root = ranks - 1, .layout = Layout::equal(ranks, 2)}}) {
      if (!has_root(algorithm().collective)) shape.root = 0;
      if (!algorithm().supports(shape).empty()) continue;
      const Verdict verdict = verify(algorithm(), shape);
      EXPECT_GE(verdict.grade, algorithm().grade) << text(shape) << ": " << verdict.problem;
    }
  }
}

TEST_P(RootedAlgorithm, DeclaresItsLimitsExactly) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const Shape& shape : shapes_of(algorithm(), ranks)) {
      size_t fan_out = 0;
      int32_t chunks = 1;
      const std::vector<Program> programs = emit_all(algorithm(), shape);
      for (const Program& program : programs) {
        fan_out = std::max(fan_out, targets_of(program).size());
        for (const Step& step : program.steps) {
          if (step.kind == StepKind::send) chunks = std::max(chunks, chunks_in(step.src));
        }
      }
      ASSERT_EQ(programs[0].fan_out, static_cast<int32_t>(fan_out)) << text(shape);
      ASSERT_EQ(programs[0].chunks_per_message, chunks) << text(shape);
    }
  }
}

TEST_P(RootedAlgorithm, OneRankOnlyCopies) {
  if (!algorithm().supports({}).empty()) return;  // hierarchical
  const std::vector<Program> programs = emit_all(algorithm(), {});
  const bool has_result =
      algorithm().collective != Collective::barrier && algorithm().collective != Collective::exscan;
  ASSERT_EQ(programs[0].steps.size(), has_result ? 1U : 0U);
  for (const Step& step : programs[0].steps) EXPECT_EQ(step.kind, StepKind::copy);
}

TEST(RootedCatalogue, OffersACanonicalAlgorithmForAnyNumberOfRanks) {
  for (const Collective collective : kCollectives) {
    const std::vector<const Algorithm*> candidates = algorithms_for(collective);
    for (int32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
      EXPECT_TRUE(std::ranges::any_of(candidates,
                                      [&](const Algorithm* algorithm) {
                                        return algorithm->grade == Grade::canonical &&
                                               algorithm->supports({.ranks = ranks}).empty();
                                      }))
          << name(collective) << " of " << ranks;
    }
  }
}

TEST(RootedCatalogue, OffersADirectAlgorithmForUnevenBlocks) {
  for (const Collective collective :
       {Collective::gather, Collective::scatter, Collective::all_to_all}) {
    EXPECT_TRUE(std::ranges::any_of(algorithms_for(collective), &Algorithm::direct))
        << name(collective);
  }
}

// Algorithms that forward through a third rank are not direct.
TEST(RootedCatalogue, ForwardingIsNotDirect) {
  for (const auto& [collective, name] :
       {std::pair{Collective::gather, "binomial"}, std::pair{Collective::scatter, "binomial"},
        std::pair{Collective::all_to_all, "bruck"}}) {
    Algorithm algorithm = require_algorithm(collective, name);
    EXPECT_FALSE(algorithm.direct);
    algorithm.direct = true;
    EXPECT_EQ(verify(algorithm, {.ranks = 8}).grade, Grade::wrong) << name;
  }
}

// ---- figures of the literature

TEST(Linear, TakesOneRound) {
  for (const int32_t p : {2, 3, 8, 17, 33}) {
    for (const Collective collective : kCollectives) {
      if (find_algorithm(collective, "linear") == nullptr) continue;
      for (const int32_t root : {0, has_root(collective) ? p - 1 : 0}) {
        EXPECT_EQ(depth_of(collective, "linear", p, root), 1) << name(collective);
        const int32_t messages = messages_sent(programs_of(collective, "linear", p, root));
        EXPECT_EQ(messages, (p - 1) * (collective == Collective::all_to_all ? p : 1));
      }
    }
  }
}

TEST(Linear, BroadcastPublishesOnce) {
  for (const int32_t p : {2, 5, 16}) {
    const std::vector<Program> programs = programs_of(Collective::broadcast, "linear", p, 1);
    EXPECT_EQ(std::ranges::count(programs[1].steps, StepKind::send, &Step::kind), 1);
  }
}

TEST(Knomial, TakesLogarithmicallyManyRoundsFromAnyRoot) {
  const std::map<std::string, int32_t> radices = {
      {"binomial", 2}, {"knomial_4", 4}, {"knomial_8", 8}};
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    for (int32_t root = 0; root < p; ++root) {
      for (const auto& [name, radix] : radices) {
        for (const Collective collective :
             {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
          if (find_algorithm(collective, name) == nullptr) continue;
          EXPECT_LE(depth_of(collective, name, p, root), log_up(radix, p)) << name << ", " << p;
          EXPECT_EQ(messages_sent(programs_of(collective, name, p, root)), p - 1);
        }
      }
    }
    EXPECT_GE(depth_of(Collective::broadcast, "binomial", p), log2_down(p));
  }
}

// A rank has at most k - 1 children in each round.
TEST(Knomial, RootHasFewChildren) {
  for (const auto& [name, radix] :
       std::map<std::string, int32_t>{{"binomial", 2}, {"knomial_4", 4}, {"knomial_8", 8}}) {
    for (const int32_t p : {2, 4, 8, 16, 32, 64}) {
      const Program program = programs_of(Collective::broadcast, name, p)[0];
      EXPECT_LE(program.fan_out, (radix - 1) * log_up(radix, p));
      EXPECT_GE(program.fan_out, log2_up(p));
    }
  }
}

// Every block is sent once along each edge between its rank and the root. The root receives every
// block except its own, once.
TEST(Knomial, GatherAndScatterMoveWholeGroups) {
  for (const int32_t p : {2, 4, 8, 16, 32}) {
    for (const int32_t root : {0, 1, p - 1}) {
      const std::vector<Program> gather = programs_of(Collective::gather, "binomial", p, root);
      const std::vector<Program> scatter = programs_of(Collective::scatter, "binomial", p, root);
      EXPECT_EQ(chunks_received(gather[root]), p - 1);
      EXPECT_EQ(chunks_sent(scatter[root]), p - 1);
      int32_t gathered = 0;
      int32_t scattered = 0;
      for (int32_t rank = 0; rank < p; ++rank) {
        gathered += chunks_sent(gather[rank]);
        scattered += chunks_sent(scatter[rank]);
      }
      EXPECT_EQ(gathered, p / 2 * log2_up(p));
      EXPECT_EQ(scattered, p / 2 * log2_up(p));
    }
  }
}

TEST(Chain, EveryRankSendsTheBufferOnceToItsNeighbour) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    for (const Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::scan, Collective::exscan}) {
      const int32_t root = has_root(collective) ? p / 2 : 0;
      EXPECT_EQ(depth_of(collective, "chain", p, root), p - 1);
      const std::vector<Program> programs = programs_of(collective, "chain", p, root);
      EXPECT_EQ(messages_sent(programs), p - 1);
      for (int32_t rank = 0; rank < p; ++rank) {
        EXPECT_LE(messages_sent(programs[rank]), 1);
        const int32_t next = (rank + (collective == Collective::reduce ? p - 1 : 1)) % p;
        for (const int32_t target : targets_of(programs[rank])) EXPECT_EQ(target, next);
      }
    }
  }
}

// The chunks form a pipeline: each further chunk arrives one round later than the chunk before it.
TEST(Chain, SeveralChunksFormAPipeline) {
  for (const int32_t p : {2, 3, 5, 8}) {
    for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
      for (const int32_t chunks : {8, 32}) {
        const std::string name = cat("chain_", chunks);
        EXPECT_EQ(depth_of(collective, name, p, p / 2), p - 1);
        for (const Program& program : programs_of(collective, name, p, p / 2)) {
          EXPECT_EQ(messages_sent({program}) % chunks, 0);
          EXPECT_LE(messages_sent({program}), chunks);
          EXPECT_EQ(program.chunks_per_message, 1);
        }
      }
    }
  }
}

// The algorithm of van de Geijn takes log2 p + p - 1 rounds. No rank sends 2n, and no rank receives
// data that it already has.
TEST(ScatterAllGather, MovesLittleFromAnyRoot) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    for (const int32_t root : {0, 1, p - 1}) {
      EXPECT_LE(depth_of(Collective::broadcast, "scatter_all_gather", p, root), log2_up(p) + p - 1);
      const std::vector<Program> programs =
          programs_of(Collective::broadcast, "scatter_all_gather", p, root);
      for (int32_t rank = 0; rank < p; ++rank) {
        EXPECT_LE(chunks_sent(programs[rank]), 2 * (p - 1)) << p << ", rank " << rank;
        EXPECT_EQ(chunks_received(programs[rank]), rank == root ? 0 : p);
      }
    }
  }
}

TEST(DoubleTree, TwoShallowTreesHaveDifferentInnerNodes) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    for (const int32_t root : {0, p / 2, p - 1}) {
      for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
        // The trees connect the ranks other than the root, which is above both trees.
        EXPECT_EQ(depth_of(collective, "double_tree", p, root), 1 + log2_down(p - 1));
        const std::vector<Program> programs = programs_of(collective, "double_tree", p, root);
        EXPECT_EQ(messages_sent(programs), 2 * (p - 1));  // two trees of p - 1 edges
        for (int32_t rank = 0; rank < p; ++rank) {
          const bool down = collective == Collective::broadcast;
          const int32_t halves =
              down ? chunks_sent(programs[rank]) : chunks_received(programs[rank]);
          EXPECT_LE(halves, 2) << name(collective) << ", " << p << ", rank " << rank;
          if (rank == root) continue;
          EXPECT_EQ(down ? chunks_received(programs[rank]) : chunks_sent(programs[rank]), 2);
        }
      }
    }
  }
}

TEST(TwoShotReduce, SharesTheArithmeticInTwoRounds) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    EXPECT_EQ(depth_of(Collective::reduce, "two_shot", p, p / 2), 2);
    const std::vector<Program> programs = programs_of(Collective::reduce, "two_shot", p, p / 2);
    for (int32_t rank = 0; rank < p; ++rank) {
      const bool is_root = rank == p / 2;
      EXPECT_EQ(chunks_sent(programs[rank]), p - 1 + (is_root ? 0 : 1));
      EXPECT_EQ(chunks_received(programs[rank]), p - 1 + (is_root ? p - 1 : 0));
    }
  }
}

// The algorithm of Rabenseifner takes 2 log2 p rounds. Every rank reduces n (p - 1)/p and sends at
// most 2n (p - 1)/p.
TEST(ScatterGatherReduce, SharesTheArithmeticInLogarithmicallyManyRounds) {
  for (const int32_t p : {2, 4, 8, 16, 32}) {
    for (int32_t root = 0; root < p; ++root) {
      EXPECT_EQ(depth_of(Collective::reduce, "scatter_gather", p, root), 2 * log2_up(p));
      for (const Program& program : programs_of(Collective::reduce, "scatter_gather", p, root)) {
        int32_t reduced = 0;
        for (const Step& step : program.steps) {
          if (step.kind == StepKind::recv_reduce) reduced += chunks_in(step.dst);
        }
        EXPECT_EQ(reduced, p - 1);
        EXPECT_LE(chunks_sent(program), 2 * (p - 1));
      }
    }
  }
  EXPECT_NE(require_algorithm(Collective::reduce, "scatter_gather").supports({.ranks = 6}), "");
}

// In round k, rank r sends to r + k and receives from r - k.
TEST(Linear, AllToAllHasADifferentReceiverForEveryRankInARound) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    const std::vector<Program> programs = programs_of(Collective::all_to_all, "linear", p);
    for (int32_t rank = 0; rank < p; ++rank) {
      int32_t sent = 0;
      int32_t received = 0;
      for (const Step& step : programs[rank].steps) {
        if (step.kind == StepKind::send) {
          EXPECT_EQ(step.peers, std::vector<int32_t>{(rank + ++sent) % p});
        } else if (step.kind == StepKind::recv) {
          EXPECT_EQ(step.peers[0], (rank + p - ++received) % p);
          EXPECT_EQ(sent, p - 1) << "in place, a block would be overwritten before it is sent";
        }
      }
    }
  }
}

TEST(AllToAllBruck, SendsHalfOfTheBlocksInLogarithmicallyManyMessages) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    EXPECT_LE(depth_of(Collective::all_to_all, "bruck", p), log2_up(p));
    for (const Program& program : programs_of(Collective::all_to_all, "bruck", p)) {
      EXPECT_EQ(messages_sent(program), log2_up(p));
      int32_t bits = 0;  // total number of bits set in all distances
      for (int32_t i = 1; i < p; ++i) bits += std::popcount(static_cast<uint32_t>(i));
      EXPECT_EQ(chunks_sent(program), bits);
      EXPECT_LE(program.chunks_per_message, p / 2);
    }
  }
}

TEST(AllToAllHierarchical, SendsOneBundleToEachOtherHost) {
  const Algorithm& algorithm = require_algorithm(Collective::all_to_all, "hierarchical");
  for (const auto& [p, group] : {std::pair{4, 2}, {6, 2}, {6, 3}, {16, 4}, {32, 8}}) {
    const Shape shape{.ranks = p, .layout = Layout::equal(p, group)};
    EXPECT_EQ(depth_of(algorithm, shape), 2);
    const std::vector<Program> programs = emit_all(algorithm, shape);
    for (int32_t rank = 0; rank < p; ++rank) {
      int32_t across = 0;
      for (const Step& step : programs[rank].steps) {
        if (step.kind != StepKind::send || step.peers[0] / group == rank / group) continue;
        ++across;
        EXPECT_EQ(step.peers[0] % group, rank % group);
        EXPECT_EQ(chunks_in(step.src), group);
      }
      EXPECT_EQ(across, p / group - 1);
      EXPECT_EQ(messages_sent(programs[rank]), group - 1 + p / group - 1);
    }
  }
  for (const Shape& shape : {Shape{.ranks = 8, .layout = Layout::equal(8, 1)},
                             Shape{.ranks = 8, .layout = Layout::equal(8, 8)}}) {
    EXPECT_NE(algorithm.supports(shape), "");
  }
}

TEST(RecursiveDoublingScan, TakesLogarithmicallyManyRounds) {
  for (const Collective collective : {Collective::scan, Collective::exscan}) {
    for (int32_t p = 2; p <= 64; ++p) {
      const int32_t depth = depth_of(collective, "recursive_doubling", p);
      EXPECT_LE(depth, log2_up(p));
      EXPECT_GE(depth, log2_down(p));
      const std::vector<Program> programs = programs_of(collective, "recursive_doubling", p);
      for (const Program& program : programs) {
        EXPECT_LE(messages_sent(program), log2_up(p));
      }
      // In each round, every rank of the right group receives the total of the left group. In the
      // other direction, a total is sent only if ranks further right need it.
      int32_t messages = 0;
      for (int32_t half = 1; half < p; half *= 2) {
        for (int32_t rank = 0; rank < p; ++rank) {
          const int32_t first = rank - rank % (2 * half);
          const bool is_right = rank >= first + half;
          messages += is_right ? 1 + (first + 2 * half < p ? 1 : 0) : 0;
        }
      }
      EXPECT_EQ(messages_sent(programs), messages);
    }
  }
}

TEST(Dissemination, TakesLogarithmicallyManyRounds) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    EXPECT_EQ(depth_of(Collective::barrier, "dissemination", p), log2_up(p));
    EXPECT_EQ(depth_of(Collective::barrier, "dissemination_4", p), log_up(4, p));
    EXPECT_EQ(messages_sent(programs_of(Collective::barrier, "dissemination", p)), p * log2_up(p));
  }
}

}  // namespace
}  // namespace tutti
