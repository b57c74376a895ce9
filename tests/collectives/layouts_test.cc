// Tests programs over layouts whose order differs from that of the ranks, over uneven groups, and
// over nested groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "collectives/algorithms/hierarchical.h"
#include "collectives/communicator.h"
#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"
#include "tests/support/ranks.h"
#include "topology/layout.h"

namespace tutti {
namespace {

// ---- proofs

Layout on_hosts(const std::string& hosts) {
  std::vector<Place> places;
  for (const char host : hosts) places.push_back({std::string(1, host), {}});
  return Layout::of(places);
}

// Expects the programs to have their grades. Returns the number of shapes that were proved.
int expect_grades(const Algorithm& algorithm, int32_t ranks, const Layout& layout) {
  int proved = 0;
  for (int32_t root = 0; root < (has_root(algorithm.collective) ? ranks : 1); ++root) {
    const Shape shape{.ranks = ranks, .root = root, .layout = layout};
    if (!why_unsupported(algorithm, shape).empty()) continue;
    const Verdict verdict = verify(algorithm, shape);
    EXPECT_EQ(verdict.problem, "");
    EXPECT_GE(verdict.grade, grade_of(algorithm, shape))
        << name(algorithm.collective) << ' ' << algorithm.name << ", " << ranks << " ranks, root "
        << root << ", " << to_text(layout);
    if (reduces(algorithm.collective)) {
      for (const Arithmetic arithmetic : {Arithmetic::means, Arithmetic::scaled}) {
        const Verdict with = verify(algorithm, shape, arithmetic);
        EXPECT_EQ(with.problem, "") << algorithm.name << ", " << to_text(layout);
        EXPECT_GE(with.grade, grade_of(algorithm, shape)) << algorithm.name;
      }
    }
    ++proved;
  }
  return proved;
}

TEST(Layouts, EveryAlgorithmRunsOutOfOrder) {
  for (const Algorithm* algorithm : all_algorithms()) {
    int proved = 0;
    for (const std::string hosts : {"aba", "abab", "abba", "aabca", "bacbca", "abcabcab"}) {
      proved += expect_grades(*algorithm, static_cast<int32_t>(hosts.size()), on_hosts(hosts));
    }
    EXPECT_GT(proved, 0) << algorithm->name;
  }
}

TEST(Layouts, SumsOutOfOrderAreNotCanonical) {
  const Algorithm& canonical = require_algorithm(Collective::all_reduce, "recursive_doubling");
  const Shape cyclic{.ranks = 4, .layout = on_hosts("abab")};
  EXPECT_EQ(grade_of(canonical, {.ranks = 4}), Grade::canonical);
  EXPECT_EQ(grade_of(canonical, cyclic), Grade::same_bits);
  EXPECT_EQ(verify(canonical, cyclic).grade, Grade::same_bits);
  const Algorithm& gather = require_algorithm(Collective::all_gather, "ring");
  EXPECT_EQ(grade_of(gather, cyclic), gather.grade) << "it has no sums";
  const Algorithm& scan = require_algorithm(Collective::scan, "recursive_doubling");
  EXPECT_EQ(verify(scan, cyclic).grade, Grade::canonical) << "it is in the order of the ranks";
}

std::set<int32_t> peers_of(const Program& program) {
  std::set<int32_t> peers;
  for (const Step& step : program.steps) peers.insert(step.peers.begin(), step.peers.end());
  return peers;
}

// A program that was generated for the ranks of a machine must not be permuted.
TEST(Layouts, LeaveProgramsOfGivenRanksAlone) {
  Algorithm ring = require_algorithm(Collective::all_gather, "ring");
  ring.over_positions = false;
  const Shape cyclic{.ranks = 4, .rank = 1, .layout = on_hosts("abab")};
  const Program moved = program_of(require_algorithm(Collective::all_gather, "ring"), cyclic);
  const Program same = program_of(ring, cyclic);
  const Program plain = ring.emit({.ranks = 4, .rank = 1});
  ASSERT_EQ(same.steps.size(), plain.steps.size());
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(to_string(same.steps[i]), to_string(plain.steps[i]));
  }
  EXPECT_THAT(peers_of(plain), ::testing::ElementsAre(0, 2));
  EXPECT_THAT(peers_of(moved), ::testing::ElementsAre(2, 3)) << "ranks 0 2 1 3 in a ring";
}

// Counts the ranks that send to another host. In rank order, all messages of the ring would leave a
// host.
TEST(Layouts, RingsLeaveAHostOnce) {
  const std::string hosts = "abcabcabc";
  const auto crossing = [&](const Layout& layout) {
    int ranks_that_leave = 0;
    for (int32_t rank = 0; rank < 9; ++rank) {
      const Program program = program_of(require_algorithm(Collective::all_reduce, "ring"),
                                         {.ranks = 9, .rank = rank, .layout = layout});
      const bool leaves = std::ranges::any_of(program.steps, [&](const Step& step) {
        return step.kind == StepKind::send &&
               hosts[static_cast<size_t>(step.peers[0])] != hosts[static_cast<size_t>(rank)];
      });
      ranks_that_leave += leaves ? 1 : 0;
    }
    return ranks_that_leave;
  };
  EXPECT_EQ(crossing(Layout()), 9);
  EXPECT_EQ(crossing(on_hosts(hosts)), 3);
}

// Returns all divisions of the ranks into consecutive groups.
std::vector<std::vector<int>> compositions(int ranks) {
  std::vector<std::vector<int>> all;
  for (uint32_t cuts = 0; cuts < 1U << (ranks - 1); ++cuts) {
    std::vector<int> sizes{1};
    for (int i = 0; i + 1 < ranks; ++i) {
      if ((cuts >> i & 1) != 0) {
        sizes.push_back(1);
      } else {
        ++sizes.back();
      }
    }
    all.push_back(sizes);
  }
  return all;
}

TEST(Layouts, HierarchicalRunsOverGroupsOfAnySizes) {
  for (const char* name :
       {"hierarchical", "hierarchical(ring,ring,ring)", "hierarchical(pat,two_shot,bruck)",
        "hierarchical(circulant,recursive_multiplying_4,all_pairs)"}) {
    const Algorithm* composed = parse_hierarchical(name);
    const Algorithm& algorithm =
        composed != nullptr ? *composed : require_algorithm(Collective::all_reduce, name);
    for (int ranks = 3; ranks <= 8; ++ranks) {
      int proved = 0;
      for (const std::vector<int>& sizes : compositions(ranks)) {
        proved += expect_grades(algorithm, ranks, Layout::of_sizes(sizes));
      }
      EXPECT_EQ(proved, (1 << (ranks - 1)) - 2) << name << ": all but one group, or one of each";
    }
  }
}

// A rank that has no counterpart in the smaller group sends its input to one other rank, and
// receives the result from it.
TEST(Layouts, RanksWithoutACounterpartSendTheirInputOnce) {
  const Algorithm& algorithm = require_algorithm(Collective::all_reduce, "hierarchical");
  const Shape shape{.ranks = 7, .rank = 6, .layout = Layout::of_sizes(std::vector{2, 5})};
  const Program program = program_of(algorithm, shape);
  int32_t sent = 0;
  int32_t received = 0;
  for (const Step& step : program.steps) {
    EXPECT_THAT(step.peers, ::testing::ElementsAre(2)) << to_string(step);
    if (step.kind == StepKind::send) {
      for (const ChunkRange& range : step.src) sent += range.count;
    }
    if (step.kind == StepKind::recv) {
      for (const ChunkRange& range : step.dst) received += range.count;
    }
  }
  EXPECT_EQ(sent, program.input_chunks);
  EXPECT_EQ(received, program.output_chunks);
}

// Ranks are on hosts of nodes of caches, of random sizes.
TEST(Layouts, HierarchicalRunsOverGroupsOfGroups) {
  std::mt19937 random(11);
  const Algorithm& all_levels = require_algorithm(Collective::all_reduce, "hierarchical");
  const Algorithm* two = parse_hierarchical("hierarchical(ring,hierarchical(ring,ring,ring),ring)");
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(two->name, "hierarchical(ring,hierarchical(ring,ring,ring),ring)");
  EXPECT_EQ(two->levels, 2);
  int three_levels = 0;
  int of_two = 0;
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<Place> places;
    const auto up_to = [&](int most) {
      return 1 + static_cast<int>(random() % static_cast<uint32_t>(most));
    };
    for (int host = up_to(3); host > 0; --host) {
      int cache = 0;
      for (int node = up_to(2); node > 0; --node) {
        for (int caches = up_to(2); caches > 0; --caches, ++cache) {
          places.insert(places.end(), static_cast<size_t>(up_to(2)),
                        {std::to_string(host), {.numa_node = node, .cache = cache}});
        }
      }
    }
    if (turn % 2 == 0) std::ranges::shuffle(places, random);
    const Layout layout = Layout::of(places);
    const auto ranks = static_cast<int32_t>(places.size());
    expect_grades(all_levels, ranks, layout);
    of_two += expect_grades(*two, ranks, layout);
    three_levels += layout.levels() == 3 ? 1 : 0;
  }
  EXPECT_GT(three_levels, 10);
  EXPECT_GT(of_two, 20);
}

// One rank of each cache sends its part of the host's sum to other hosts.
TEST(Layouts, InnerLevelsKeepBytesWithinAHost) {
  std::vector<Place> places;
  for (int rank = 0; rank < 16; ++rank) {
    places.push_back({std::to_string(rank / 8), {.numa_node = -1, .cache = rank % 8 / 4}});
  }
  const Layout layout = Layout::of(places);
  ASSERT_EQ(layout.levels(), 2);
  const Algorithm& algorithm = require_algorithm(Collective::all_reduce, "hierarchical");
  for (int32_t rank = 0; rank < 16; ++rank) {
    const Program program = program_of(algorithm, {.ranks = 16, .rank = rank, .layout = layout});
    int32_t across = 0;
    for (const Step& step : program.steps) {
      if (step.kind != StepKind::send || step.peers[0] / 8 == rank / 8) continue;
      for (const ChunkRange& range : step.src) across += range.count;
    }
    EXPECT_EQ(across * 8, program.input_chunks) << "two hosts exchange halves, each rank an eighth";
  }
}

// ---- runs

constexpr int kCount = 1001;

std::vector<int32_t> values_of(int rank, size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<int32_t>(rank * 7919 + static_cast<int>(i) * 31);
  }
  return values;
}

Buffer whole(std::vector<int32_t>& values) { return {values.data(), values.size(), DType::i32}; }

std::vector<int32_t> sum_of(int ranks, size_t count) {
  std::vector<int32_t> sum(count, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<int32_t> values = values_of(rank, count);
    std::ranges::transform(sum, values, sum.begin(), std::plus<>());
  }
  return sum;
}

// Runs every collective with every algorithm that supports it, from every root.
void run_all(Communicator& comm, const Layout& layout) {
  const int ranks = comm.size();
  const auto p = static_cast<size_t>(ranks);
  std::vector<int32_t> mine = values_of(comm.rank(), kCount);
  std::vector<int32_t> all(kCount * p);
  for (int rank = 0; rank < ranks; ++rank) {
    std::ranges::copy(values_of(rank, kCount), all.begin() + rank * kCount);
  }
  for (const Algorithm* algorithm : all_algorithms()) {
    if (!why_unsupported(*algorithm, {.ranks = ranks, .layout = layout}).empty()) continue;
    const CallOptions options{.algorithm = algorithm->name};
    SCOPED_TRACE(algorithm->name);
    std::vector<int32_t> out(kCount);
    std::vector<int32_t> gathered(kCount * p);
    switch (algorithm->collective) {
      case Collective::all_reduce:
        comm.all_reduce(as_const(whole(mine)), whole(out), ReduceOp::sum, options);
        EXPECT_EQ(out, sum_of(ranks, kCount));
        break;
      case Collective::all_gather:
        comm.all_gather(as_const(whole(mine)), whole(gathered), options);
        EXPECT_EQ(gathered, all);
        break;
      case Collective::all_to_all: {
        std::vector<int32_t> to_each = values_of(comm.rank(), kCount * p);
        comm.all_to_all(as_const(whole(to_each)), whole(gathered), options);
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<int32_t> theirs = values_of(rank, kCount * p);
          EXPECT_TRUE(std::equal(gathered.begin() + rank * kCount,
                                 gathered.begin() + (rank + 1) * kCount,
                                 theirs.begin() + comm.rank() * kCount));
        }
        break;
      }
      case Collective::reduce_scatter: {
        std::vector<int32_t> blocks = values_of(comm.rank(), kCount * p);
        comm.reduce_scatter(as_const(whole(blocks)), whole(out), ReduceOp::sum, options);
        const std::vector<int32_t> sum = sum_of(ranks, kCount * p);
        EXPECT_TRUE(std::equal(out.begin(), out.end(), sum.begin() + comm.rank() * kCount));
        break;
      }
      case Collective::gather:
        comm.gather(as_const(whole(mine)), whole(gathered), ranks - 1, options);
        if (comm.rank() == ranks - 1) {
          EXPECT_EQ(gathered, all);
        }
        break;
      case Collective::scatter:
        comm.scatter(as_const(whole(all)), whole(out), ranks - 2, options);
        EXPECT_EQ(out, mine);
        break;
      case Collective::broadcast: {
        std::vector<int32_t> sent = values_of(ranks - 2, kCount);
        comm.broadcast(as_const(whole(sent)), whole(out), ranks - 2, options);
        EXPECT_EQ(out, sent);
        break;
      }
      case Collective::scan:
        comm.scan(as_const(whole(mine)), whole(out), ReduceOp::sum, options);
        EXPECT_EQ(out, sum_of(comm.rank() + 1, kCount));
        break;
      default:
        break;
    }
  }
}

TEST(Layouts, GiveEveryCollectiveItsResults) {
  const std::vector<std::vector<int>> placements = {
      {0, 1, 0, 1}, {1, 0, 0, 1, 1}, {0, 1, 2, 0, 1, 2, 0}};
  for (const std::vector<int>& caches : placements) {
    testing::run_ranks(static_cast<int>(caches.size()), [&](Job job) {
      std::vector<Place> places;
      for (const int cache : caches) places.push_back({"", {.numa_node = -1, .cache = cache}});
      job.domain = places[static_cast<size_t>(job.rank)].domain;
      Communicator comm = Communicator::init(job);
      run_all(comm, Layout::of(places));
    });
  }
}

// Deterministic calls and non-commutative operators combine in the order of ranks, not in that of
// the layout.
TEST(Layouts, DoNotChangeDeterministicBits) {
  constexpr int kRanks = 6;
  std::vector<std::vector<float>> results(2);
  for (const bool moved : {false, true}) {
    testing::run_ranks(kRanks, [&](Job job) {
      if (moved) job.domain = {.numa_node = -1, .cache = job.rank % 2};
      Communicator comm = Communicator::init(job);
      std::vector<float> values(kCount);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = 1.0F / static_cast<float>(i + 3 * static_cast<size_t>(job.rank) + 1);
      }
      const Buffer buffer{values.data(), values.size(), DType::f32};
      comm.all_reduce(as_const(buffer), buffer, ReduceOp::sum, {.deterministic = true});
      if (job.rank == 3) results[moved ? 1 : 0] = values;
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace tutti
