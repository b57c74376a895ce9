// Broadcast by scatter and all-gather (van de Geijn): the root's buffer is divided into one chunk
// per rank, and the ranks exchange the chunks among themselves.
//
//   p = 4, root 0:     0 [0 1 2 3]                 binomial scatter: halves go to the first rank of
//                      0 [0 1 2 3]   2 [2 3]       the other half of the ranks
//                      0 [0 1 2 3] → 1 [1] → 2 [2 3] → 3 [3]
//                                                  all-gather along the ring: each rank forwards
//                                                  the chunks that its neighbour lacks
//
// No rank sends more than about 2n bytes, whatever p (a binomial tree's root sends n log2 p), and
// every rank except the root receives each byte once. It takes log2 p + p - 1 rounds of small
// messages, so it needs fewer slices than a chain to fill the pipeline.
//
// M. Barnett, S. Gupta, D. Payne, L. Shuler, R. van de Geijn, J. Watts: Interprocessor Collective
// Communication Library (InterCom). SHPCC 1994. MPICH uses it for long messages (Thakur,
// Rabenseifner, Gropp, IJHPCA 2005). Unlike there, the all-gather does not send chunks that the
// receiver already has from the scatter.

#include <algorithm>
#include <ranges>
#include <set>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"

namespace tutti::algorithms {

namespace {

void scatter(const Shape& shape, std::vector<Step>& steps) {
  const KnomialTree tree = knomial_tree(shape, 2);
  const bool is_root = shape.rank == shape.root;
  const auto size = [](const KnomialTree::Group& group) { return group.last - group.first; };
  if (!is_root) steps.push_back(recv(tree.parent, {output(tree.own.first, size(tree.own))}));
  for (const std::vector<KnomialTree::Group>& groups : std::views::reverse(tree.merges)) {
    for (const KnomialTree::Group& group : groups) {
      if (group.holder == shape.rank) continue;
      const Space space = is_root ? Space::input : Space::output;
      steps.push_back(send({group.holder}, {{space, group.first, size(group)}}));
    }
  }
}

void scatter_all_gather_all_gather(const Shape& shape, std::vector<Step>& steps) {
  const int32_t p = shape.ranks;
  const int32_t next = (shape.rank + 1) % p;
  const int32_t previous = (shape.rank + p - 1) % p;
  const auto scattered_to = [&](int32_t rank) {
    return knomial_tree({.ranks = p, .rank = rank, .root = shape.root}, 2).own;
  };
  const KnomialTree::Group mine = scattered_to(shape.rank);
  const KnomialTree::Group its = scattered_to(next);
  const auto in = [](const KnomialTree::Group& group, int32_t chunk) {
    return group.first <= chunk && chunk < group.last;
  };
  const Space space = shape.rank == shape.root ? Space::input : Space::output;
  for (int32_t round = 0; round + 1 < p; ++round) {
    const int32_t sent = (shape.rank - round + p) % p;
    const int32_t received = (previous - round + p) % p;
    if (!in(its, sent)) steps.push_back(send({next}, {{space, sent, 1}}));
    if (!in(mine, received)) steps.push_back(recv(previous, {output(received)}));
  }
}

std::vector<Step> steps_of(const Shape& shape) {
  std::vector<Step> steps;
  scatter(shape, steps);
  scatter_all_gather_all_gather(shape, steps);
  if (shape.rank == shape.root) {
    steps.push_back(copy({input(0, shape.ranks)}, {output(0, shape.ranks)}));
  }
  return steps;
}

// Returns the largest number of ranks that a rank sends to. As in the tree, either rank 0 or the
// root sends to the most ranks.
int32_t fan_out(const Shape& shape) {
  size_t most = 1;
  for (const int32_t rank : {0, shape.root}) {
    std::set<int32_t> targets;
    for (const Step& step : steps_of({.ranks = shape.ranks, .rank = rank, .root = shape.root})) {
      if (step.kind == StepKind::send) targets.insert(step.peers.begin(), step.peers.end());
    }
    most = std::max(most, targets.size());
  }
  return static_cast<int32_t>(most);
}

Program emit_scatter_all_gather(const Shape& shape) {
  return {.input_chunks = shape.ranks,
          .output_chunks = shape.ranks,
          .chunks_per_message = largest_group(shape, 2),
          .fan_out = fan_out(shape),
          .steps = steps_of(shape)};
}

}  // namespace

Algorithm broadcast_scatter_all_gather() {
  return {.collective = Collective::broadcast,
          .name = "scatter_all_gather",
          .source = "van de Geijn et al., SHPCC 1994",
          .grade = Grade::canonical,
          .emit = emit_scatter_all_gather};
}

}  // namespace tutti::algorithms
