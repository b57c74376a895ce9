// Hierarchical trees: broadcast and reduce with the minimum number of messages between hosts.
//
//   hosts of 3, 2 and 3 ranks, root 4:
//
//     0  1  2 │ 3 [4] │ 5  6  7        a tree over hosts, represented by the root or by their first
//     ↑─────────────│                  rank
//     │             │───────↑
//     │──↑──↑     ↑─│       │──↑──↑    then a tree inside each host
//
// h hosts exchange h - 1 messages, at most log2 h (rounded up) of them in sequence. A binomial tree
// over ranks in numerical order needs as few messages only if the number of ranks per host is a
// power of two; otherwise its groups straddle hosts. If hosts have NUMA nodes, and these have
// caches, there are trees over nodes and caches in between. The partial sums of a reduce combine
// neighbours and are not rounded.
//
// N. T. Karonis et al.: Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective
// Operation Performance. IPDPS 2000.

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/nested_groups.h"
#include "collectives/algorithms/trees.h"

namespace tutti::algorithms {

namespace {

constexpr int32_t kRadix = 2;

// The trees as seen from one rank: one tree per stage, over the parts of the rank's group.
class NestedTrees {
 public:
  explicit NestedTrees(const Shape& shape) : groups_(shape, shape.layout.levels()), shape_(shape) {}

  int32_t stages() const { return groups_.stages(); }
  // Returns the first stage at which this rank represents its part. At all later stages it is the
  // root of its tree.
  int32_t first_stage() const {
    int32_t stage = 0;
    while (leader(groups_.group(stage + 1, shape_.rank)) != shape_.rank) ++stage;
    return stage;
  }
  // Returns the tree of a stage. Parts take the place of ranks in it.
  KnomialTree tree(int32_t stage) const {
    const int32_t root = leader(groups_.group(stage, shape_.rank));
    return knomial_tree({.ranks = groups_.parts(stage, shape_.rank),
                         .rank = groups_.part_of(stage, shape_.rank),
                         .root = groups_.part_of(stage, root)},
                        kRadix);
  }
  int32_t leader_of_part(int32_t stage, int32_t part) const {
    const int32_t first = groups_.first_of_part(stage, shape_.rank, part);
    return leader(groups_.group(stage + 1, first));
  }
  // Returns true if `parts`, a group of the tree, consists of a single part with a single rank.
  bool is_one_rank(int32_t stage, const KnomialTree::Group& parts) const {
    const int32_t last = groups_.first_of_part(stage, shape_.rank, parts.last - 1);
    return parts.last - parts.first == 1 && groups_.group(stage + 1, last).size == 1;
  }

 private:
  int32_t leader(const NestedGroups::Group& group) const {
    return group.has(shape_.root) ? shape_.root : group.first;
  }

  const NestedGroups groups_;
  const Shape& shape_;
};

// Returns the rank that sends to this one (broadcast) or receives from it (reduce); -1 at the root.
int32_t parent_of(const NestedTrees& trees) {
  const int32_t stage = trees.first_stage();
  const int32_t part = trees.tree(stage).parent;
  return part < 0 ? -1 : trees.leader_of_part(stage, part);
}

// Returns the largest number of children of any rank. It is cached, because every rank's program
// contains it.
int32_t most_children(Shape shape) {
  thread_local std::optional<std::pair<Shape, int32_t>> last;
  shape.rank = 0;
  if (last && last->first == shape) return last->second;
  int32_t most = 1;
  for (Shape at = shape; at.rank < at.ranks; ++at.rank) {
    const NestedTrees trees(at);
    int32_t children = 0;
    for (int32_t stage = trees.first_stage(); stage < trees.stages(); ++stage) {
      children += trees.tree(stage).children;
    }
    most = std::max(most, children);
  }
  last = {shape, most};
  return most;
}

Program emit_tree_hierarchical_broadcast(const Shape& shape) {
  const NestedTrees trees(shape);
  std::vector<int32_t> children;  // outermost stage first, and largest groups first
  for (int32_t stage = trees.first_stage(); stage < trees.stages(); ++stage) {
    const KnomialTree tree = trees.tree(stage);
    for (const auto& merge : std::views::reverse(tree.merges)) {
      for (const KnomialTree::Group& group : merge) {
        const int32_t holder = trees.leader_of_part(stage, group.holder);
        if (holder != shape.rank) children.push_back(holder);
      }
    }
  }
  Program program{.fan_out = most_children(shape)};
  const int32_t parent = parent_of(trees);
  const ChunkRange held = parent < 0 ? input(0) : output(0);
  if (parent >= 0) program.steps.push_back(recv(parent, {output(0)}));
  if (!children.empty()) program.steps.push_back(send(std::move(children), {held}));
  if (parent < 0) program.steps.push_back(copy({input(0)}, {output(0)}));
  return program;
}

Program emit_tree_hierarchical_reduce(const Shape& shape) {
  const NestedTrees trees(shape);
  const int32_t parent = parent_of(trees);
  Program program{.scratch_chunks = 1};
  ChunkRange mine = input(0);
  for (int32_t stage = trees.stages() - 1; stage >= trees.first_stage(); --stage) {
    const KnomialTree tree = trees.tree(stage);
    for (const auto& merge : tree.merges) {
      const bool last = parent < 0 && stage == 0 && &merge == &tree.merges.back();
      const ChunkRange sum = last ? output(0) : scratch(0);
      for (const KnomialTree::Group& group : merge) {
        const int32_t holder = trees.leader_of_part(stage, group.holder);
        if (holder == shape.rank) continue;
        const Wire wire = trees.is_one_rank(stage, group) ? Wire::element : Wire::accumulator;
        const bool on_left = &group == &merge.front();
        program.steps.push_back(on_left ? recv_reduce_left(holder, {mine}, {sum}, wire)
                                        : recv_reduce_right(holder, {mine}, {sum}, wire));
      }
      mine = sum;
    }
  }
  if (parent >= 0) program.steps.push_back(send({parent}, {mine}, unrounded(mine)));
  return program;
}

Algorithm tree_hierarchical_row(Collective collective, Grade grade,
                                Program (*emit)(const Shape& shape)) {
  return {.collective = collective,
          .name = "hierarchical",
          .source = "Karonis et al., IPDPS 2000",
          .grade = grade,
          .emit = emit,
          .supports = several_groups_only};
}

}  // namespace

Algorithm broadcast_hierarchical() {
  return tree_hierarchical_row(Collective::broadcast, Grade::canonical,
                               emit_tree_hierarchical_broadcast);
}

Algorithm reduce_hierarchical() {
  return tree_hierarchical_row(Collective::reduce, Grade::same_bits, emit_tree_hierarchical_reduce);
}

}  // namespace tutti::algorithms
