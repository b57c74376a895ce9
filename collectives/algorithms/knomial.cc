// Trees of any radix k: broadcast, reduce, gather and scatter in ceil(log_k p) rounds.
//
//   k = 2 (binomial), p = 8, root 5:        k = 4, p = 8, root 5:
//
//             5                                        5
//           ╱ │ ╲                                 ╱  ╱ │ ╲
//         0   6  4                               0  4  6  7
//       ╱ │   │                                ╱ │ ╲
//      2  1   7                               1  2  3
//      │
//      3
//
// With root 0 and k = 2, a rank's parent is found by clearing its lowest set bit: 7 = 111b → 110b =
// 6 → 100b = 4 → 0. With k = 4, its lowest non-zero digit in base 4 is cleared. Any other root
// takes the place of the first rank in each group that contains the root.
//
// The groups that merge are aligned neighbours (trees.h). Reduce combines their results unrounded,
// lower ranks on the left, which is the canonical order for every root. In gather and scatter, a
// message contains the blocks of all ranks of a group.
//
// A larger k has fewer rounds. A rank then serves more children at once, which costs little if one
// message reaches several ranks.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH. IJHPCA 19(1), 2005. Other radices as in MPICH's and Libfabric's k-nomial trees.

#include <algorithm>
#include <ranges>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"

namespace tutti::algorithms {

namespace {

using Group = KnomialTree::Group;

int32_t size_of(const Group& group) { return group.last - group.first; }

Program emit_knomial_broadcast(const Shape& shape, int32_t radix) {
  const KnomialTree tree = knomial_tree(shape, radix);
  std::vector<int32_t> children;  // children with the largest groups first
  for (const std::vector<Group>& groups : std::views::reverse(tree.merges)) {
    for (const Group& group : groups) {
      if (group.holder != shape.rank) children.push_back(group.holder);
    }
  }

  Program program{.fan_out = most_children(shape, radix)};
  const bool is_root = shape.rank == shape.root;
  if (!is_root) program.steps.push_back(recv(tree.parent, {output(0)}));
  if (!children.empty()) {
    program.steps.push_back(send(children, {is_root ? input(0) : output(0)}));
  }
  if (is_root) program.steps.push_back(copy({input(0)}, {output(0)}));
  return program;
}

Program emit_knomial_reduce(const Shape& shape, int32_t radix) {
  Program program;
  if (shape.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  // With radix 2, one contribution is local and the other is reduced on reception.
  program.scratch_chunks = 1 + (radix > 2 ? slots_to_reduce(radix) : 0);
  const KnomialTree tree = knomial_tree(shape, radix);
  ChunkRange mine = input(0);
  for (const std::vector<Group>& groups : tree.merges) {
    const bool last = tree.parent < 0 && &groups == &tree.merges.back();
    const ChunkRange sum = last ? output(0) : scratch(0);
    const auto contribution = [&](int32_t i) -> Contribution {
      if (groups[i].holder == shape.rank) return {.here = mine};
      return {.peer = groups[i].holder,
              .wire = size_of(groups[i]) == 1 ? Wire::element : Wire::accumulator};
    };
    receive_and_reduce_canonically(
        static_cast<int32_t>(groups.size()), contribution,
        [](int32_t slot) { return scratch(1 + slot); }, sum, program.steps);
    mine = sum;
  }
  if (tree.parent >= 0) program.steps.push_back(send({tree.parent}, {mine}, unrounded(mine)));
  return program;
}

// Returns the blocks of a rank's group: first the rank's own block, then the other blocks, which
// are in scratch.
RangeList held(const Group& group, ChunkRange own_block) {
  RangeList ranges = {own_block};
  if (size_of(group) > 1) ranges.push_back(scratch(group.first + 1, size_of(group) - 1));
  return ranges;
}

Program emit_knomial_gather(const Shape& shape) {
  const KnomialTree tree = knomial_tree(shape, 2);
  const bool is_root = shape.rank == shape.root;
  Program program{.output_chunks = shape.ranks,
                  .scratch_chunks = shape.ranks > 2 ? shape.ranks : 0,
                  .chunks_per_message = largest_group(shape, 2)};
  for (const std::vector<Group>& groups : tree.merges) {
    for (const Group& group : groups) {
      if (group.holder == shape.rank) continue;
      const Space space = is_root ? Space::output : Space::scratch;
      program.steps.push_back(recv(group.holder, {{space, group.first, size_of(group)}}));
    }
  }
  program.steps.push_back(is_root ? copy({input(0)}, {output(shape.rank)})
                                  : send({tree.parent}, held(tree.own, input(0))));
  return program;
}

Program emit_knomial_scatter(const Shape& shape) {
  const KnomialTree tree = knomial_tree(shape, 2);
  const bool is_root = shape.rank == shape.root;
  Program program{.input_chunks = shape.ranks,
                  .scratch_chunks = shape.ranks > 2 ? shape.ranks : 0,
                  .chunks_per_message = largest_group(shape, 2),
                  .fan_out = most_children(shape, 2)};
  if (!is_root) program.steps.push_back(recv(tree.parent, held(tree.own, output(0))));
  for (const std::vector<Group>& groups : std::views::reverse(tree.merges)) {
    for (const Group& group : groups) {
      if (group.holder == shape.rank) continue;
      const Space space = is_root ? Space::input : Space::scratch;
      program.steps.push_back(send({group.holder}, {{space, group.first, size_of(group)}}));
    }
  }
  if (is_root) program.steps.push_back(copy({input(shape.rank)}, {output(0)}));
  return program;
}

Algorithm knomial_row(Collective collective, std::string name,
                      std::function<Program(const Shape& shape)> emit) {
  return {.collective = collective,
          .name = std::move(name),
          .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
          .grade = Grade::canonical,
          .emit = std::move(emit)};
}

std::string name_of(int32_t radix) {
  return radix == 2 ? "binomial" : "knomial_" + std::to_string(radix);
}

}  // namespace

Algorithm broadcast_knomial(int32_t radix) {
  return knomial_row(Collective::broadcast, name_of(radix),
                     [radix](const Shape& shape) { return emit_knomial_broadcast(shape, radix); });
}

Algorithm reduce_knomial(int32_t radix) {
  return knomial_row(Collective::reduce, name_of(radix),
                     [radix](const Shape& shape) { return emit_knomial_reduce(shape, radix); });
}

Algorithm gather_binomial() {
  return knomial_row(Collective::gather, name_of(2), emit_knomial_gather);
}

Algorithm scatter_binomial() {
  return knomial_row(Collective::scatter, name_of(2), emit_knomial_scatter);
}

}  // namespace tutti::algorithms
