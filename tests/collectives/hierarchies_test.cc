// Tests the hierarchical programs of all collectives except all_reduce, over groups of any sizes
// and over nested groups, and their traffic between groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"
#include "tests/collectives/program_facts.h"

namespace tutti {
namespace {

std::vector<const Algorithm*> algorithms() {
  return {&require_algorithm(Collective::broadcast, "hierarchical"),
          &require_algorithm(Collective::reduce, "hierarchical"),
          &require_algorithm(Collective::all_gather, "hierarchical"),
          &require_algorithm(Collective::reduce_scatter, "hierarchical"),
          &require_algorithm(Collective::all_to_all, "hierarchical"),
          &require_algorithm(Collective::all_to_all, "hierarchical_leaders")};
}

class Hierarchies : public testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& algorithm() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Catalogue, Hierarchies, testing::ValuesIn(algorithms()),
                         [](const testing::TestParamInfo<const Algorithm*>& test) {
                           return std::string(name(test.param->collective)) + "_" +
                                  test.param->name;
                         });

// Returns places of up to 64 ranks: racks of hosts of nodes of caches, of random sizes.
std::vector<Place> random_places(std::mt19937& random) {
  const auto up_to = [&](int most) {
    return 1 + static_cast<int>(random() % static_cast<uint32_t>(most));
  };
  std::vector<Place> places;
  int rack = 0;
  for (int host = 1 + up_to(3); host > 0; --host) {
    rack += up_to(2) - 1;
    int cache = 0;
    for (int node = up_to(2); node > 0; --node) {
      for (int caches = up_to(2); caches > 0; --caches, ++cache) {
        places.insert(places.end(), static_cast<size_t>(up_to(4)),
                      {std::to_string(host),
                       {.numa_node = node, .cache = cache},
                       cat("row", rack / 2, ".rack", rack)});
      }
    }
  }
  return places;
}

std::vector<Shape> random_shapes(int count) {
  std::mt19937 random(29);
  std::vector<Shape> shapes;
  while (static_cast<int>(shapes.size()) < count) {
    const std::vector<Place> places = random_places(random);
    const Layout layout = Layout::of(places);
    if (layout.of_hosts().levels() == 0) continue;  // skips layouts with one rank on each host
    shapes.push_back({.ranks = static_cast<int32_t>(places.size()), .layout = layout});
  }
  return shapes;
}

// Returns all divisions of the ranks into consecutive groups, except a single group and groups of
// one rank.
std::vector<Shape> all_groupings(int ranks) {
  std::vector<Shape> shapes;
  for (uint32_t cuts = 1; cuts + 1 < 1U << (ranks - 1); ++cuts) {
    std::vector<int> sizes{1};
    for (int i = 0; i + 1 < ranks; ++i) {
      if ((cuts >> i & 1) != 0) {
        sizes.push_back(1);
      } else {
        ++sizes.back();
      }
    }
    shapes.push_back({.ranks = ranks, .layout = Layout::of_sizes(sizes)});
  }
  return shapes;
}

// A message of `chunks` chunks.
struct Message {
  int32_t from;
  int32_t to;
  int32_t chunks;
};

std::vector<Message> messages_of(const std::vector<Program>& programs) {
  std::vector<Message> messages;
  for (int32_t rank = 0; rank < static_cast<int32_t>(programs.size()); ++rank) {
    for (const Step& step : programs[static_cast<size_t>(rank)].steps) {
      if (step.kind != StepKind::send) continue;
      for (const int32_t peer : step.peers) messages.push_back({rank, peer, chunks_in(step.src)});
    }
  }
  return messages;
}

struct Traffic {
  int32_t messages = 0;
  int32_t chunks = 0;
};

// Returns the traffic from group `from` of a level to group `to`, or to all other groups if `to` is
// -1.
Traffic between(const std::vector<Message>& messages, const Layout& layout, int level, int from,
                int to) {
  Traffic sum;
  for (const Message& message : messages) {
    const int source = layout.group_of(level, message.from);
    const int target = layout.group_of(level, message.to);
    if (source != from || target == from || (to >= 0 && target != to)) continue;
    ++sum.messages;
    sum.chunks += message.chunks;
  }
  return sum;
}

// ---- proofs

void expect_proved(const Algorithm& algorithm, Shape shape) {
  const int32_t roots = has_root(algorithm.collective) ? shape.ranks : 1;
  for (shape.root = 0; shape.root < roots; ++shape.root) {
    const Verdict verdict = verify(algorithm, shape);
    ASSERT_EQ(verdict.problem, "") << to_text(shape.layout) << ", root " << shape.root;
    ASSERT_GE(verdict.grade, grade_of(algorithm, shape)) << to_text(shape.layout);
  }
}

TEST_P(Hierarchies, RunsOverGroupsOfAnySizes) {
  for (int ranks = 3; ranks <= 9; ++ranks) {
    for (const Shape& shape : all_groupings(ranks)) {
      ASSERT_EQ(why_unsupported(algorithm(), shape), "") << to_text(shape.layout);
      expect_proved(algorithm(), shape);
    }
  }
}

TEST_P(Hierarchies, RunsOverGroupsOfGroups) {
  std::set<int> levels;
  for (const Shape& shape : random_shapes(100)) {
    levels.insert(shape.layout.levels());
    expect_proved(algorithm(), shape);
  }
  EXPECT_THAT(levels, testing::IsSupersetOf({2, 3, 4, 5}));
}

TEST_P(Hierarchies, RunsOverRanksThatAreOutOfOrder) {
  std::mt19937 random(31);
  for (int turn = 0; turn < 50; ++turn) {
    std::vector<Place> places = random_places(random);
    std::ranges::shuffle(places, random);
    const Shape shape{.ranks = static_cast<int32_t>(places.size()), .layout = Layout::of(places)};
    if (!why_unsupported(algorithm(), shape).empty()) continue;
    expect_proved(algorithm(), shape);
  }
}

TEST_P(Hierarchies, DeclaresItsLimitsExactly) {
  for (const Shape& shape : random_shapes(50)) {
    size_t fan_out = 0;
    int32_t chunks = 1;
    int32_t scratch = 0;
    const std::vector<Program> programs = emit_all(algorithm(), shape);
    for (const Program& program : programs) {
      fan_out = std::max(fan_out, targets_of(program).size());
      for (const Step& step : program.steps) {
        if (step.kind == StepKind::send) chunks = std::max(chunks, chunks_in(step.src));
        for (const ChunkRange& range : step.dst) {
          if (range.space == Space::scratch) scratch = std::max(scratch, range.first + range.count);
        }
      }
    }
    ASSERT_EQ(programs[0].fan_out, static_cast<int32_t>(fan_out)) << to_text(shape.layout);
    ASSERT_EQ(programs[0].chunks_per_message, chunks) << to_text(shape.layout);
    if (algorithm().collective == Collective::all_to_all && algorithm().name == "hierarchical") {
      ASSERT_EQ(programs[0].scratch_chunks, scratch) << to_text(shape.layout);
    }
  }
}

TEST_P(Hierarchies, NeedsGroups) {
  for (const Shape& shape : {Shape{.ranks = 1}, Shape{.ranks = 8, .layout = Layout::equal(8, 1)},
                             Shape{.ranks = 8, .layout = Layout::equal(8, 8)}}) {
    EXPECT_THAT(algorithm().supports(shape), testing::HasSubstr("several hosts"));
  }
}

// ---- traffic between groups

TEST(HierarchicalAllGather, BringsEachBlockIntoEachGroupOnce) {
  const Algorithm& algorithm = require_algorithm(Collective::all_gather, "hierarchical");
  for (const Shape& shape : random_shapes(30)) {
    const std::vector<Message> messages = messages_of(emit_all(algorithm, shape));
    for (int level = 0; level < shape.layout.levels(); ++level) {
      for (int group = 0; group < shape.layout.groups(level); ++group) {
        int32_t entering = 0;
        for (int other = 0; other < shape.layout.groups(level); ++other) {
          if (other != group) {
            entering += between(messages, shape.layout, level, other, group).chunks;
          }
        }
        ASSERT_EQ(entering, shape.ranks - shape.layout.size(level, group))
            << to_text(shape.layout) << ", level " << level << ", group " << group;
      }
    }
  }
}

TEST(HierarchicalReduceScatter, SendsEachSumOutOfEachGroupOnce) {
  const Algorithm& algorithm = require_algorithm(Collective::reduce_scatter, "hierarchical");
  for (const Shape& shape : random_shapes(30)) {
    const std::vector<Message> messages = messages_of(emit_all(algorithm, shape));
    for (int level = 0; level < shape.layout.levels(); ++level) {
      for (int group = 0; group < shape.layout.groups(level); ++group) {
        ASSERT_EQ(between(messages, shape.layout, level, group, -1).chunks,
                  shape.ranks - shape.layout.size(level, group))
            << to_text(shape.layout) << ", level " << level << ", group " << group;
      }
    }
  }
}

TEST(HierarchicalAllToAll, SendsOneBundleToEachRankOfAnotherHost) {
  const Algorithm& algorithm = require_algorithm(Collective::all_to_all, "hierarchical");
  for (const Shape& shape : random_shapes(30)) {
    const std::vector<Message> messages = messages_of(emit_all(algorithm, shape));
    const Layout layout = shape.layout.of_hosts();
    for (int from = 0; from < layout.groups(0); ++from) {
      for (int to = 0; to < layout.groups(0); ++to) {
        if (from == to) continue;
        const Traffic traffic = between(messages, layout, 0, from, to);
        ASSERT_EQ(traffic.messages, layout.size(0, to)) << to_text(layout);
        ASSERT_EQ(traffic.chunks, layout.size(0, from) * layout.size(0, to)) << to_text(layout);
      }
    }
  }
}

TEST(AllToAllLeaders, SendsOneMessageToEachOtherHost) {
  const Algorithm& algorithm = require_algorithm(Collective::all_to_all, "hierarchical_leaders");
  for (const Shape& shape : random_shapes(30)) {
    const std::vector<Message> messages = messages_of(emit_all(algorithm, shape));
    const Layout layout = shape.layout.of_hosts();
    for (int from = 0; from < layout.groups(0); ++from) {
      for (int to = 0; to < layout.groups(0); ++to) {
        if (from == to) continue;
        const Traffic traffic = between(messages, layout, 0, from, to);
        ASSERT_EQ(traffic.messages, 1) << to_text(layout);
        ASSERT_EQ(traffic.chunks, layout.size(0, from) * layout.size(0, to)) << to_text(layout);
      }
    }
    EXPECT_LE(depth_of(algorithm, shape), 3);
  }
}

// Among the ranks of a host, the numbers of hosts for which a rank is the leader differ by at most
// one.
TEST(AllToAllLeaders, SharesTheOtherHostsAmongTheRanks) {
  const Algorithm& algorithm = require_algorithm(Collective::all_to_all, "hierarchical_leaders");
  const Shape shape{.ranks = 64, .layout = Layout::equal(64, 4)};
  const std::vector<Program> programs = emit_all(algorithm, shape);
  for (int32_t rank = 0; rank < 64; ++rank) {
    int32_t across = 0;
    for (const int32_t peer : targets_of(programs[static_cast<size_t>(rank)])) {
      across += peer / 4 != rank / 4 ? 1 : 0;
    }
    EXPECT_GE(across, 3);
    EXPECT_LE(across, 4);
  }
}

// In groups of equal size, all ranks have the same number of rounds: one per level, and one inside
// the innermost group.
TEST_P(Hierarchies, TakesOneRoundForEachLevel) {
  if (has_root(algorithm().collective) || algorithm().name == "hierarchical_leaders") return;
  for (const auto& [ranks, group] : {std::pair{6, 2}, {6, 3}, {16, 4}, {24, 8}}) {
    const Shape shape{.ranks = ranks, .layout = Layout::equal(ranks, group)};
    EXPECT_EQ(depth_of(algorithm(), shape), 2);
    for (const Program& program : emit_all(algorithm(), shape)) {
      EXPECT_EQ(messages_sent(program), group - 1 + ranks / group - 1);
    }
  }
  std::vector<Place> places;  // 3 hosts of 2 nodes of 2 caches of 2 ranks
  for (int rank = 0; rank < 24; ++rank) {
    places.push_back(
        {std::to_string(rank / 8), {.numa_node = rank / 4 % 2, .cache = rank / 2 % 4}});
  }
  const Shape shape{.ranks = 24, .layout = Layout::of(places)};
  ASSERT_EQ(shape.layout.levels(), 3);
  const bool over_hosts_only = algorithm().collective == Collective::all_to_all;
  EXPECT_EQ(depth_of(algorithm(), shape), over_hosts_only ? 2 : 4);
  for (const Program& program : emit_all(algorithm(), shape)) {
    EXPECT_EQ(messages_sent(program), over_hosts_only ? 2 + 7 : 2 + 1 + 1 + 1);
  }
}

// Returns the length of the longest chain of messages between hosts. Each rank receives at most one
// message.
int32_t rounds_between_hosts(const std::vector<Message>& messages, const Shape& shape) {
  std::vector<const Message*> into(static_cast<size_t>(shape.ranks));
  for (const Message& message : messages) into[static_cast<size_t>(message.to)] = &message;
  int32_t most = 0;
  for (int32_t rank = 0; rank < shape.ranks; ++rank) {
    int32_t rounds = 0;
    for (int32_t at = rank; at != shape.root; at = into[static_cast<size_t>(at)]->from) {
      const Message& message = *into[static_cast<size_t>(at)];
      const bool between_hosts =
          shape.layout.group_of(0, message.from) != shape.layout.group_of(0, message.to);
      rounds += between_hosts ? 1 : 0;
    }
    most = std::max(most, rounds);
  }
  return most;
}

int32_t messages_between_groups(const std::vector<Message>& messages, const Layout& layout,
                                int level) {
  int32_t sum = 0;
  for (int group = 0; group < layout.groups(level); ++group) {
    sum += between(messages, layout, level, group, -1).messages;
  }
  return sum;
}

TEST(HierarchicalTrees, EnterEachGroupOnce) {
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    const Algorithm& algorithm = require_algorithm(collective, "hierarchical");
    for (Shape shape : random_shapes(30)) {
      for (shape.root = 0; shape.root < shape.ranks; ++shape.root) {
        std::vector<Message> messages = messages_of(emit_all(algorithm, shape));
        ASSERT_EQ(static_cast<int32_t>(messages.size()), shape.ranks - 1);
        for (int level = 0; level < shape.layout.levels(); ++level) {
          ASSERT_EQ(messages_between_groups(messages, shape.layout, level),
                    shape.layout.groups(level) - 1)
              << to_text(shape.layout) << ", level " << level << ", root " << shape.root;
        }
        if (collective == Collective::reduce) {
          for (Message& message : messages) std::swap(message.from, message.to);
        }
        const auto hosts = static_cast<uint32_t>(shape.layout.groups(0));
        ASSERT_LE(rounds_between_hosts(messages, shape), std::bit_width(hosts - 1))
            << to_text(shape.layout) << ", root " << shape.root;
      }
    }
  }
}

// In a binomial tree, groups of two, four or eight ranks straddle the hosts of six, which is why
// these trees exist.
TEST(HierarchicalTrees, SendLessBetweenHostsThanBinomialTrees) {
  const Shape shape{.ranks = 48, .root = 7, .layout = Layout::equal(48, 6)};
  const auto crossing = [&](std::string_view name) {
    const Algorithm& algorithm = require_algorithm(Collective::broadcast, name);
    return messages_between_groups(messages_of(emit_all(algorithm, shape)), shape.layout, 0);
  };
  EXPECT_EQ(crossing("hierarchical"), 7);
  EXPECT_GT(crossing("binomial"), 7);
}

}  // namespace
}  // namespace tutti
