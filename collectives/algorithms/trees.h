// The trees that several algorithms walk. Rank arithmetic only.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/program/program.h"

namespace tutti::algorithms {

// The k-nomial tree, seen from one rank. Ranks form aligned groups of 1, k, k^2 ... members; k
// groups merge to one of the next size (fewer where the ranks end). Each group is held by its first
// rank, or by the root where that is in the group. k = 2 is the binomial tree.
//
//   p = 8, k = 2, root 5:     0 1 2 3 4 [5] 6 7
//                             0 ← 1,  2 ← 3,  4 → 5,  6 ← 7     groups of 2
//                             0 ← 2,          5 ← 6             groups of 4
//                             0 → 5                             all
//
// Groups are neighbours, so most edges stay inside a host, and what a group holds is one range.
struct KnomialTree {
  struct Group {
    int32_t first;
    int32_t last;  // one past its last rank
    int32_t holder;
  };
  // The merges into groups that this rank holds, smallest first; each lists its groups in rank
  // order, one of them this rank's.
  std::vector<std::vector<Group>> merges;
  Group own;             // the largest group that this rank holds
  int32_t parent = -1;   // who takes it; -1 at the root
  int32_t children = 0;  // ranks that hand theirs to this one
};

KnomialTree knomial_tree(const Shape& shape, int32_t radix);

// Most children that any rank has.
int32_t most_children(const Shape& shape, int32_t radix);
// Ranks of the largest group that changes hands.
int32_t largest_group(const Shape& shape, int32_t radix);

// A node of one of two binary trees over labels 1 to n, in the order of the labels. A label's
// lowest set bit is its height; the leaves are 1, 3, 5 ... The second tree is the first one
// mirrored (even n) or shifted by one (odd n): who is an inner node in one is a leaf in the other.
//
//   tree 0, n = 6:    4           tree 1:    3
//                   ╱   ╲                  ╱   ╲
//                  2     6                1     5
//                ╱  ╲   ╱                  ╲   ╱  ╲
//               1    3 5                    2 4    6
//
// P. Sanders, J. Speck, J. L. Träff: Two-tree algorithms for full bandwidth broadcast, reduction
// and scan. Parallel Computing 35(12), 2009.
struct TwoTreeNode {
  int32_t parent = 0;  // labels; 0: none
  int32_t left = 0;
  int32_t right = 0;

  std::vector<int32_t> children() const;
};

TwoTreeNode two_tree_node(int32_t tree, int32_t label, int32_t n);
// The label without a parent.
int32_t two_tree_top(int32_t tree, int32_t n);

// Ranks first to first + size - 1, where size is a power of two. The teams of p ranks are one for
// each bit of p, the largest first: 7 = 4 + 2 + 1. `first` is a multiple of the size, so that ranks
// of a team may pair up by their bits. The canonical tree is that of the first team, plus that of
// all the others.
struct Team {
  int32_t first;
  int32_t size;

  bool has(int32_t rank) const { return first <= rank && rank < first + size; }
};

std::vector<Team> teams_of(int32_t ranks);

}  // namespace tutti::algorithms
