// Double binary tree all-reduce: two trees over the same ranks, each with half of the buffer.
//
//   tree 0 (chunk 0), p = 6:           tree 1 (chunk 1), the mirror image:
//
//              3                                  2
//           ╱     ╲                            ╱     ╲
//         1         5                        0         4
//       ╱   ╲     ╱                            ╲     ╱   ╲
//      0     2   4                              1   3     5
//
// Rank r has label r + 1, and a label's lowest set bit determines its parent (trees.h): in tree 0
// rank 4 has label 5 = 101b; its parent label 110b = 6 is rank 5, whose parent label 100b = 4 is
// rank 3.
//
// Chunks are reduced on their way up and sent back down. An inner node of one tree is a leaf of the
// other, so both directions of every rank's link are used about equally, and the depth is
// logarithmic.
//
// P. Sanders, J. Speck, J. L. Träff: Two-tree algorithms for full bandwidth broadcast, reduction
// and scan. Parallel Computing 35(12), 2009. Also NCCL 2.4's trees.

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"

namespace tutti::algorithms {

namespace {

// A rank's neighbours in one tree. Rank r has label r + 1 in both trees.
struct Place {
  int32_t parent;  // -1 at the top of the tree
  std::vector<int32_t> children;
};

Place place_of(int32_t tree, int32_t rank, int32_t ranks) {
  const TwoTreeNode node = two_tree_node(tree, rank + 1, ranks);
  Place place{.parent = node.parent - 1, .children = node.children()};
  for (int32_t& child : place.children) --child;
  return place;
}

void reduce_up(int32_t tree, int32_t rank, int32_t ranks, std::vector<Step>& steps) {
  const Place place = place_of(tree, rank, ranks);
  ChunkRange mine = input(tree);
  for (const int32_t child : place.children) {
    steps.push_back(child < rank ? recv_reduce_left(child, {mine}, {output(tree)})
                                 : recv_reduce_right(child, {mine}, {output(tree)}));
    mine = output(tree);
  }
  if (place.parent >= 0) steps.push_back(send({place.parent}, {mine}));
}

void broadcast_down(int32_t tree, int32_t rank, int32_t ranks, std::vector<Step>& steps) {
  const Place place = place_of(tree, rank, ranks);
  if (place.parent >= 0) steps.push_back(recv(place.parent, {output(tree)}));
  if (!place.children.empty()) steps.push_back(send(place.children, {output(tree)}));
}

std::vector<Step> tree_steps(int32_t ranks, int32_t rank) {
  std::vector<Step> steps;
  for (const int32_t tree : {0, 1}) reduce_up(tree, rank, ranks, steps);
  for (const int32_t tree : {0, 1}) broadcast_down(tree, rank, ranks, steps);
  return steps;
}

int32_t fan_out(int32_t, int32_t ranks) { return largest_fan_out(ranks, tree_steps); }

Program emit_double_binary_tree(const Shape& shape) {
  Program program{.input_chunks = 2, .output_chunks = 2};
  if (shape.ranks == 1) {
    program.steps = {copy({input(0, 2)}, {output(0, 2)})};
    return program;
  }
  program.steps = tree_steps(shape.ranks, shape.rank);
  program.fan_out = remembered(fan_out, 2, shape.ranks);
  return program;
}

}  // namespace

Algorithm all_reduce_double_binary_tree() {
  return {.collective = Collective::all_reduce,
          .name = "double_binary_tree",
          .source = "Sanders, Speck, Träff, Parallel Computing 2009",
          .grade = Grade::same_bits,
          .emit = emit_double_binary_tree};
}

}  // namespace tutti::algorithms
