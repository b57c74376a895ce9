// The catalogue: what verify proves of each algorithm, and what the literature says of its cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/algorithm.h"
#include "collectives/plan.h"
#include "collectives/verify.h"

namespace tutti {
namespace {

constexpr int32_t kMaxRanks = 33;

int32_t log2_down(int32_t n) { return std::bit_width(static_cast<uint32_t>(n)) - 1; }
int32_t log2_up(int32_t n) { return std::bit_width(static_cast<uint32_t>(n - 1)); }

std::vector<Program> programs_of(const Algorithm& algorithm, int32_t ranks, int32_t root = 0) {
  std::vector<Program> programs;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    programs.push_back(algorithm.emit({.ranks = ranks, .rank = rank, .root = root}));
  }
  return programs;
}

std::vector<Program> all_reduce(std::string_view name, int32_t ranks) {
  return programs_of(require_algorithm(Collective::all_reduce, name), ranks);
}

int32_t messages_sent(const Program& program) {
  int32_t count = 0;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::send) count += static_cast<int32_t>(step.peers.size());
  }
  return count;
}

// The longest chain of messages in which each waits for the one before it.
class Depth {
 public:
  Depth(const Algorithm& algorithm, int32_t ranks, int32_t root = 0) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const Shape shape{.ranks = ranks, .rank = rank, .root = root};
      plans_.push_back(make_plan(algorithm.collective, shape, algorithm.emit(shape)));
    }
    for (int32_t rank = 0; rank < ranks; ++rank) {
      depths_.emplace_back(plans_[rank].program.steps.size(), -1);
    }
  }

  int32_t longest() {
    int32_t depth = 0;
    for (size_t rank = 0; rank < plans_.size(); ++rank) {
      for (size_t step = 0; step < depths_[rank].size(); ++step) {
        depth = std::max(depth, of(static_cast<int32_t>(rank), static_cast<int32_t>(step)));
      }
    }
    return depth;
  }

 private:
  int32_t of(int32_t rank, int32_t step) {
    if (depths_[rank][step] >= 0) return depths_[rank][step];
    int32_t depth = 0;
    for (int32_t earlier = 0; earlier < step; ++earlier) {
      const uint64_t word = plans_[rank].needs_of(step)[earlier / 64];
      if ((word >> (earlier % 64) & 1) != 0) depth = std::max(depth, of(rank, earlier));
    }
    const Step& s = plans_[rank].program.steps[step];
    if (s.kind == StepKind::recv || s.kind == StepKind::recv_reduce) {
      const int32_t peer = s.peers[0];
      const std::vector<int32_t>& mine = queue(rank, Plan::QueueKind::recv, peer);
      const auto k = std::ranges::find(mine, step) - mine.begin();
      depth = std::max(depth, 1 + of(peer, queue(peer, Plan::QueueKind::send, rank)[k]));
    }
    return depths_[rank][step] = depth;
  }

  const std::vector<int32_t>& queue(int32_t rank, Plan::QueueKind kind, int32_t peer) const {
    for (const Plan::Queue& queue : plans_[rank].queues) {
      if (queue.kind == kind && queue.peer == peer) return queue.steps;
    }
    throw Error(ErrorCode::internal, "a message without its other side");
  }

  std::vector<Plan> plans_;
  std::vector<std::vector<int32_t>> depths_;
};

int32_t depth_of(Collective collective, std::string_view name, int32_t ranks, int32_t root = 0) {
  return Depth(require_algorithm(collective, name), ranks, root).longest();
}

// ---- the catalogue

TEST(Catalogue, OrderIsPartOfTheWireFormat) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : all_algorithms()) {
    EXPECT_EQ(algorithm_index(algorithm), static_cast<int>(names.size()));
    EXPECT_EQ(find_algorithm(algorithm.collective, algorithm.name), &algorithm);
    names.push_back(std::string(name(algorithm.collective)) + " " + std::string(algorithm.name));
  }
  EXPECT_THAT(names, testing::ElementsAre("all_reduce naive", "all_reduce parameter_server",
                                          "all_reduce ring", "all_reduce double_binary_tree",
                                          "all_reduce recursive_doubling", "all_gather ring",
                                          "reduce_scatter ring", "broadcast binomial",
                                          "reduce binomial", "barrier dissemination"));
}

TEST(Catalogue, AnUnknownNameListsTheOthers) {
  EXPECT_EQ(find_algorithm(Collective::all_reduce, "rign"), nullptr);
  EXPECT_EQ(find_algorithm(Collective::all_reduce, "binomial"), nullptr);
  try {
    require_algorithm(Collective::all_reduce, "rign");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), testing::HasSubstr("\"rign\""));
    EXPECT_THAT(error.what(),
                testing::HasSubstr("auto, naive, parameter_server, ring, double_binary_tree, "
                                   "recursive_doubling"));
  }
}

// ---- proofs

class EachAlgorithm : public testing::TestWithParam<int> {
 protected:
  const Algorithm& algorithm() const { return all_algorithms()[GetParam()]; }
};

INSTANTIATE_TEST_SUITE_P(Catalogue, EachAlgorithm,
                         testing::Range(0, static_cast<int>(all_algorithms().size())),
                         [](const testing::TestParamInfo<int>& test) {
                           const Algorithm& algorithm = all_algorithms()[test.param];
                           return std::string(name(algorithm.collective)) + "_" +
                                  std::string(algorithm.name);
                         });

TEST_P(EachAlgorithm, HasTheGradeThatItClaims) {
  Grade lowest = Grade::canonical;
  for (int32_t ranks = 1; ranks <= 64; ++ranks) {
    ASSERT_EQ(algorithm().supports(ranks), "");
    std::set<int32_t> roots = {0};
    if (has_root(algorithm().collective) && ranks <= kMaxRanks) {
      for (int32_t root = 0; root < ranks; ++root) roots.insert(root);
    } else if (has_root(algorithm().collective)) {
      roots.insert({ranks / 2, ranks - 1});
    }
    for (const int32_t root : roots) {
      const Verdict verdict = verify(algorithm(), ranks, root);
      ASSERT_NE(verdict.grade, Grade::wrong)
          << ranks << " ranks, root " << root << ": " << verdict.problem;
      lowest = std::min(lowest, verdict.grade);
    }
  }
  EXPECT_EQ(name(lowest), name(algorithm().grade));
}

TEST_P(EachAlgorithm, DeclaresItsLimitsExactly) {
  for (int32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    size_t fan_out = 0;
    int32_t chunks = 1;
    const std::vector<Program> programs = programs_of(algorithm(), ranks);
    for (const Program& program : programs) {
      std::set<int32_t> targets;
      for (const Step& step : program.steps) {
        if (step.kind != StepKind::send) continue;
        targets.insert(step.peers.begin(), step.peers.end());
        int32_t sent = 0;
        for (const ChunkRange& range : step.src) sent += range.count;
        chunks = std::max(chunks, sent);
      }
      fan_out = std::max(fan_out, targets.size());
    }
    EXPECT_EQ(programs[0].fan_out, static_cast<int32_t>(fan_out)) << ranks << " ranks";
    EXPECT_EQ(programs[0].chunks_per_message, chunks) << ranks << " ranks";
  }
}

TEST_P(EachAlgorithm, OfOneRankOnlyCopies) {
  const Program program = algorithm().emit({.ranks = 1, .rank = 0, .root = 0});
  ASSERT_EQ(program.steps.size(), algorithm().collective == Collective::barrier ? 0U : 1U);
  for (const Step& step : program.steps) EXPECT_EQ(step.kind, StepKind::copy);
}

TEST(Grades, OfEachAllReduce) {
  for (const int32_t ranks : {2, 3, 4, 5, 6, 7, 8, 13, 32, 33}) {
    for (const auto& [algorithm, grade] : std::map<std::string, Grade>{
             {"naive", Grade::canonical},
             {"parameter_server", Grade::canonical},
             {"recursive_doubling", Grade::canonical},
             {"double_binary_tree", ranks <= 3 ? Grade::wrong : Grade::same_bits},
             {"ring", ranks <= 2 ? Grade::wrong : Grade::same_bits}}) {
      if (grade == Grade::wrong) continue;  // so few ranks have hardly another order
      EXPECT_EQ(verify(require_algorithm(Collective::all_reduce, algorithm), ranks).grade, grade)
          << algorithm << ", " << ranks << " ranks";
    }
  }
}

// ---- what the literature says

TEST(Naive, EveryoneSendsToEveryoneInOneRound) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    int32_t messages = 0;
    for (const Program& program : all_reduce("naive", p)) messages += messages_sent(program);
    EXPECT_EQ(messages, p * (p - 1));
    EXPECT_EQ(depth_of(Collective::all_reduce, "naive", p), 1);
  }
}

TEST(ParameterServer, EverythingGoesThroughTheManager) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    const std::vector<Program> programs = all_reduce("parameter_server", p);
    int32_t to_manager = 0;
    for (int32_t rank = 1; rank < p; ++rank) {
      for (const Step& step : programs[rank].steps) {
        EXPECT_EQ(step.peers, std::vector<int32_t>{0});
      }
      to_manager += messages_sent(programs[rank]);
    }
    EXPECT_EQ(to_manager, p - 1);
    EXPECT_EQ(messages_sent(programs[0]), p - 1);
    EXPECT_EQ(depth_of(Collective::all_reduce, "parameter_server", p), 2);
  }
}

TEST(Ring, EveryRankSendsTheLeastVolumeToItsNeighbour) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    const std::vector<Program> programs = all_reduce("ring", p);
    for (int32_t rank = 0; rank < p; ++rank) {
      EXPECT_EQ(programs[rank].input_chunks, p);
      EXPECT_EQ(messages_sent(programs[rank]), 2 * (p - 1));
      for (const Step& step : programs[rank].steps) {
        const bool sends = step.kind == StepKind::send;
        EXPECT_EQ(step.peers, std::vector<int32_t>{(rank + (sends ? 1 : p - 1)) % p});
        const RangeList& message = sends ? step.src : step.dst;
        EXPECT_TRUE(message.size() == 1 && message[0].count == 1);
      }
    }
    EXPECT_EQ(depth_of(Collective::all_reduce, "ring", p), 2 * (p - 1));
    EXPECT_EQ(depth_of(Collective::all_gather, "ring", p), p - 1);
    EXPECT_EQ(depth_of(Collective::reduce_scatter, "ring", p), p - 1);
  }
}

TEST(DoubleBinaryTree, IsTwoShallowTreesWithInnerNodesApart) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    int32_t messages = 0;
    for (const Program& program : all_reduce("double_binary_tree", p)) {
      EXPECT_EQ(program.input_chunks, 2);
      std::set<int32_t> inner_in;  // chunks, that is, trees
      std::map<int32_t, int32_t> children;
      for (const Step& step : program.steps) {
        if (step.kind == StepKind::recv_reduce) inner_in.insert(step.dst[0].first);
        if (step.kind == StepKind::recv_reduce) ++children[step.dst[0].first];
      }
      EXPECT_LE(inner_in.size(), 1U) << p << " ranks";
      for (const auto& [tree, count] : children) EXPECT_LE(count, 2);
      messages += messages_sent(program);
    }
    EXPECT_EQ(messages, 2 * 2 * (p - 1));  // trees, directions, edges
    EXPECT_EQ(depth_of(Collective::all_reduce, "double_binary_tree", p), 2 * log2_down(p));
  }
}

TEST(RecursiveDoubling, TakesLogarithmicallyManyRounds) {
  for (int32_t p = 2; p <= 64; ++p) {
    const int32_t depth = depth_of(Collective::all_reduce, "recursive_doubling", p);
    if (std::has_single_bit(static_cast<uint32_t>(p))) {
      EXPECT_EQ(depth, log2_up(p));
      for (const Program& program : all_reduce("recursive_doubling", p)) {
        EXPECT_EQ(messages_sent(program), log2_up(p));
      }
    } else {
      EXPECT_GE(depth, log2_up(p));
      EXPECT_LE(depth, log2_up(p) + 1) << p << " ranks";
    }
  }
}

TEST(Binomial, TakesLogarithmicallyManyRoundsFromAnyRoot) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    for (const int32_t root : {0, p / 2, p - 1}) {
      // The rank at distance d from the root is as many hops away as d has bits.
      int32_t most_bits = 0;
      for (int32_t d = 0; d < p; ++d) {
        most_bits = std::max(most_bits, std::popcount(static_cast<uint32_t>(d)));
      }
      EXPECT_EQ(depth_of(Collective::broadcast, "binomial", p, root), most_bits);
      EXPECT_GE(depth_of(Collective::reduce, "binomial", p, root), log2_down(p));
      EXPECT_LE(depth_of(Collective::reduce, "binomial", p, root), log2_up(p));
      for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
        int32_t messages = 0;
        const Algorithm& algorithm = require_algorithm(collective, "binomial");
        for (const Program& program : programs_of(algorithm, p, root)) {
          messages += messages_sent(program);
        }
        EXPECT_EQ(messages, p - 1);
      }
    }
  }
}

TEST(Dissemination, TakesLogarithmicallyManyRounds) {
  for (int32_t p = 2; p <= kMaxRanks; ++p) {
    EXPECT_EQ(depth_of(Collective::barrier, "dissemination", p), log2_up(p));
  }
}

}  // namespace
}  // namespace tutti
