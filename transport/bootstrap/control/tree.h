// The arithmetic of the control channel's tree: rank 0 is the root, and the parent of r is
// (r - 1) / fanout, so every rank knows every route without communication. From the set of ranks
// that have gone, every rank can compute the tree of the others: the children of a rank that has
// gone move to the nearest remaining ancestor. If none remains, they move to the lowest remaining
// rank, which becomes the root.
//
//        0                x                1
//      /   \            /   \            / | | \ .
//     1     2    ->    1     x     ->   3  4 5  6
//    / \   / \        / \   / \ .
//   3   4 5   6      3   4 5   6
#pragma once

#include <algorithm>
#include <vector>

namespace tutti::bootstrap {

struct Tree {
  int rank = 0;
  int size = 1;
  int fanout = 32;

  // Returns the parent of `r`; -1 for the root.
  int parent_of(int r) const { return r == 0 ? -1 : (r - 1) / fanout; }
  int parent() const { return parent_of(rank); }

  bool is_child(int r) const { return r > 0 && r < size && parent_of(r) == rank; }

  std::vector<int> children() const {
    std::vector<int> found;
    const long first = static_cast<long>(rank) * fanout + 1;
    const long end = std::min<long>(size, first + fanout);
    for (long r = first; r < end; ++r) found.push_back(static_cast<int>(r));
    return found;
  }

  // Returns the parent of `r` in the tree of the remaining ranks; -1 for its root.
  template <typename Departed>
  int parent_of(int r, const Departed& gone) const {
    for (int above = parent_of(r); above >= 0; above = parent_of(above)) {
      if (!gone(above)) return above;
    }
    for (int root = 0; root < r; ++root) {
      if (!gone(root)) return root;
    }
    return -1;
  }

  // Returns the neighbour on the way to `to` (not this rank): the child whose subtree has it,
  // otherwise the parent.
  template <typename Departed>
  int next_hop(int to, const Departed& gone) const {
    for (int r = to; r > rank;) {
      const int above = parent_of(r, gone);
      if (above == rank) return r;
      r = above;
    }
    return parent_of(rank, gone);
  }
  int next_hop(int to) const {
    return next_hop(to, [](int) { return false; });
  }
};

}  // namespace tutti::bootstrap
