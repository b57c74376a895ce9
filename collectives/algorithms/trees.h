// Trees shared by several algorithms. They depend only on ranks, not on hosts.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/program/program.h"

namespace tutti::algorithms {

// The k-nomial tree as seen from one rank. Ranks form aligned groups of 1, k, k^2 ... members; k
// groups merge into a group of the next size; the last group may have fewer parts. The holder of a
// group is its first rank, or the root if the root is in the group. k = 2 is the binomial tree.
//
//   p = 8, k = 2, root 5:     0 1 2 3 4 [5] 6 7
//                             0 ← 1,  2 ← 3,  4 → 5,  6 ← 7     groups of 2
//                             0 ← 2,          5 ← 6             groups of 4
//                             0 → 5                             all
//
// Groups are consecutive ranks, so most edges stay inside a host, and a group's data is one range.
struct KnomialTree {
  struct Group {
    int32_t first;
    int32_t last;  // last rank of the group, plus 1
    int32_t holder;
  };
  // The merges whose result is a group that this rank holds, smallest first. Each merge is the list
  // of the groups that it joins, in rank order; this rank holds one of them.
  std::vector<std::vector<Group>> merges;
  Group own;             // the largest group that this rank holds
  int32_t parent = -1;   // holder of the group that `own` merges into; -1 at the root
  int32_t children = 0;  // ranks whose parent is this rank
};

KnomialTree knomial_tree(const Shape& shape, int32_t radix);

// Returns the largest number of children that any rank has.
int32_t most_children(const Shape& shape, int32_t radix);
// Returns the number of ranks in the largest group that a non-root rank holds.
int32_t largest_group(const Shape& shape, int32_t radix);

// A node of one of two binary trees over labels 1 .. n, in label order. The position of a label's
// lowest set bit is its height, so the leaves are 1, 3, 5 ... The second tree is the first one
// mirrored (even n) or shifted by one (odd n), so that an inner node of one tree is a leaf of the
// other.
//
//   tree 0, n = 6:    4           tree 1:    3
//                   ╱   ╲                  ╱   ╲
//                  2     6                1     5
//                ╱  ╲   ╱                  ╲   ╱  ╲
//               1    3 5                    2 4    6
//
// The parent of label 6 = 110b in tree 0 clears the lowest set bit (10b) and sets the next one:
// 100b = 4. If that label exceeds n, the nearest ancestor that does not exceed n is the parent: for
// n = 5, label 5 = 101b would have parent 110b = 6 > 5, so its parent is 100b = 4.
//
// P. Sanders, J. Speck, J. L. Träff: Two-tree algorithms for full bandwidth broadcast, reduction
// and scan. Parallel Computing 35(12), 2009.
struct TwoTreeNode {
  int32_t parent = 0;  // label of the parent; 0: none
  int32_t left = 0;
  int32_t right = 0;

  std::vector<int32_t> children() const;
};

TwoTreeNode two_tree_node(int32_t tree, int32_t label, int32_t n);
// Returns the label of the tree's root.
int32_t two_tree_top(int32_t tree, int32_t n);

// A team is ranks first .. first + size - 1, where size is a power of two. p ranks form one team
// for each set bit of p, the largest first: 7 = 111b = 4 + 2 + 1 gives ranks 0-3, 4-5 and 6.
// `first` is a multiple of the size, so inverting one of the log2(size) lowest bits of a rank gives
// another rank of its team. The canonical tree over p ranks joins the tree of the first team and
// the tree of all further teams.
struct Team {
  int32_t first;
  int32_t size;

  bool has(int32_t rank) const { return first <= rank && rank < first + size; }
};

std::vector<Team> teams_of(int32_t ranks);

}  // namespace tutti::algorithms
