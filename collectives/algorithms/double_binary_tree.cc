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
// Chunks are reduced on their way up and sent back down. The trees are in-order binary trees: the
// leaves have the odd labels 1, 3, 5 ... A rank that is an inner node in one tree is a leaf in the
// other (mirrored for even p, shifted by one for odd p), so both directions of every rank's link
// are used about equally, and the depth is logarithmic.
//
// P. Sanders, J. Speck, J. L. Träff: Two-tree algorithms for full bandwidth broadcast, reduction
// and scan. Parallel Computing 35(12), 2009. Also NCCL 2.4's trees.

#include <algorithm>
#include <bit>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// Labels run from 1 to p. A label's lowest set bit is its height: its children are half that bit
// to either side. Where the right one would be beyond p, the nearest one that is not takes its
// place.
struct Node {
  int32_t parent = 0;  // 0: none
  int32_t left = 0;
  int32_t right = 0;
};

Node node_of(int32_t label, int32_t ranks) {
  const int32_t bit = label & -label;
  Node node;
  node.parent = (label ^ bit) | (bit << 1);
  if (node.parent > ranks) node.parent = label ^ bit;
  if (bit > 1) node.left = label - bit / 2;
  for (int32_t offset = bit / 2; offset > 0 && node.right == 0; offset /= 2) {
    if (label + offset <= ranks) node.right = label + offset;
  }
  return node;
}

int32_t label_of(int32_t tree, int32_t rank, int32_t ranks) {
  if (tree == 0) return rank + 1;
  return ranks % 2 == 0 ? ranks - rank : (rank + ranks - 1) % ranks + 1;
}

int32_t rank_of(int32_t tree, int32_t label, int32_t ranks) {
  if (tree == 0) return label - 1;
  return ranks % 2 == 0 ? ranks - label : label % ranks;
}

void reduce_up(int32_t tree, int32_t rank, int32_t ranks, std::vector<Step>& steps) {
  const Node node = node_of(label_of(tree, rank, ranks), ranks);
  ChunkRange mine = input(tree);
  if (node.left != 0) {
    steps.push_back(recv_reduce_left(rank_of(tree, node.left, ranks), {mine}, {output(tree)}));
    mine = output(tree);
  }
  if (node.right != 0) {
    steps.push_back(recv_reduce_right(rank_of(tree, node.right, ranks), {mine}, {output(tree)}));
    mine = output(tree);
  }
  if (node.parent != 0) steps.push_back(send({rank_of(tree, node.parent, ranks)}, {mine}));
}

void broadcast_down(int32_t tree, int32_t rank, int32_t ranks, std::vector<Step>& steps) {
  const Node node = node_of(label_of(tree, rank, ranks), ranks);
  if (node.parent != 0) {
    steps.push_back(recv(rank_of(tree, node.parent, ranks), {output(tree)}));
  }
  std::vector<int32_t> children;
  for (const int32_t child : {node.left, node.right}) {
    if (child != 0) children.push_back(rank_of(tree, child, ranks));
  }
  if (!children.empty()) steps.push_back(send(children, {output(tree)}));
}

std::vector<Step> steps_of(int32_t ranks, int32_t rank) {
  std::vector<Step> steps;
  for (const int32_t tree : {0, 1}) reduce_up(tree, rank, ranks, steps);
  for (const int32_t tree : {0, 1}) broadcast_down(tree, rank, ranks, steps);
  return steps;
}

Program emit(const Shape& shape) {
  Program program{.input_chunks = 2, .output_chunks = 2};
  if (shape.ranks == 1) {
    program.steps = {copy({input(0, 2)}, {output(0, 2)})};
    return program;
  }
  program.steps = steps_of(shape.ranks, shape.rank);
  program.fan_out = largest_fan_out(shape.ranks, steps_of);
  return program;
}

}  // namespace

Algorithm all_reduce_double_binary_tree() {
  return {.collective = Collective::all_reduce,
          .name = "double_binary_tree",
          .source = "Sanders, Speck, Träff, Parallel Computing 2009",
          .grade = Grade::same_bits,
          .emit = emit};
}

}  // namespace tutti::algorithms
