// Double tree: broadcast and reduce over two binary trees, each with half of the buffer.
//
//   p = 7, root 0:          0                            0            The other ranks, counted from
//              half 0       │               half 1       │            the root, form both trees
//                           4                            3            (trees.h). Inner nodes of one
//                         ╱   ╲                        ╱   ╲          are leaves of the other.
//                        2     6                      1     5
//                      ╱  ╲   ╱                        ╲   ╱  ╲
//                     1    3 5                          2 4    6
//
// A rank receives n bytes and sends at most n (half of the buffer to each of two children in one
// tree), after about log2 p rounds. For large buffers it is as efficient as a chain, with a shorter
// latency. Reduce runs the same trees in reverse. Partial sums are sent in the type of the
// elements, so every rank that adds to them rounds them.
//
// P. Sanders, J. Speck, J. L. Träff: Two-tree algorithms for full bandwidth broadcast, reduction
// and scan. Parallel Computing 35(12), 2009.

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"

namespace tutti::algorithms {

namespace {

// A rank's neighbours in one of the trees. The root is the parent of the top of each tree.
struct TreeNeighbours {
  std::vector<int32_t> children;
  int32_t parent = -1;  // -1 on the root, which has no parent
};

TreeNeighbours neighbours_of(int32_t tree, const Shape& shape) {
  const int32_t p = shape.ranks;
  const auto rank_at = [&](int32_t label) { return (shape.root + label) % p; };
  const int32_t label = (shape.rank - shape.root + p) % p;
  TreeNeighbours place;
  if (label > 0) {
    const TwoTreeNode node = two_tree_node(tree, label, p - 1);
    place.parent = rank_at(node.parent);
    for (const int32_t child : node.children()) place.children.push_back(rank_at(child));
  } else if (p > 1) {
    place.children = {rank_at(two_tree_top(tree, p - 1))};
  }
  return place;
}

Program program_of(const Shape& shape) {
  return {.input_chunks = 2, .output_chunks = 2, .fan_out = shape.ranks > 2 ? 2 : 1};
}

Program emit_double_tree_broadcast(const Shape& shape) {
  Program program = program_of(shape);
  const bool is_root = shape.rank == shape.root;
  for (const int32_t tree : {0, 1}) {
    const TreeNeighbours place = neighbours_of(tree, shape);
    if (!is_root) program.steps.push_back(recv(place.parent, {output(tree)}));
    if (!place.children.empty()) {
      program.steps.push_back(send(place.children, {is_root ? input(tree) : output(tree)}));
    }
  }
  if (is_root) program.steps.push_back(copy({input(0, 2)}, {output(0, 2)}));
  return program;
}

Program emit_double_tree_reduce(const Shape& shape) {
  Program program = program_of(shape);
  if (shape.ranks == 1) {
    program.steps = {copy({input(0, 2)}, {output(0, 2)})};
    return program;
  }
  program.scratch_chunks = shape.ranks > 2 ? 2 : 0;
  const bool is_root = shape.rank == shape.root;
  for (const int32_t tree : {0, 1}) {
    const TreeNeighbours place = neighbours_of(tree, shape);
    ChunkRange mine = input(tree);
    const ChunkRange sum = is_root ? output(tree) : scratch(tree);
    const int32_t label = (shape.rank - shape.root + shape.ranks) % shape.ranks;
    for (const int32_t child : place.children) {
      const bool below = (child - shape.root + shape.ranks) % shape.ranks < label;
      program.steps.push_back(below ? recv_reduce_left(child, {mine}, {sum})
                                    : recv_reduce_right(child, {mine}, {sum}));
      mine = sum;
    }
    if (!is_root) program.steps.push_back(send({place.parent}, {mine}));
  }
  return program;
}

Algorithm double_tree_row(Collective collective, Program (*emit)(const Shape& shape)) {
  return {.collective = collective,
          .name = "double_tree",
          .source = "Sanders, Speck, Träff, Parallel Computing 2009",
          .grade = reduces(collective) ? Grade::same_bits : Grade::canonical,
          .emit = emit};
}

}  // namespace

Algorithm broadcast_double_tree() {
  return double_tree_row(Collective::broadcast, emit_double_tree_broadcast);
}
Algorithm reduce_double_tree() {
  return double_tree_row(Collective::reduce, emit_double_tree_reduce);
}

}  // namespace tutti::algorithms
