// The arithmetic of the control channel's tree: rank 0 is the root, the parent of r is
// (r - 1) / fanout, so every rank knows every route without being told.
#pragma once

#include <algorithm>
#include <vector>

namespace tutti::bootstrap {

struct Tree {
  int rank = 0;
  int size = 1;
  int fanout = 32;

  // -1 for the root.
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

  // The neighbour on the way to `to` (not this rank): the child above it, else the parent.
  int next_hop(int to) const {
    for (int r = to; r > rank; r = parent_of(r)) {
      if (parent_of(r) == rank) return r;
    }
    return parent();
  }
};

}  // namespace tutti::bootstrap
