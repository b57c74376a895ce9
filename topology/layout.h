// An order of the ranks in which neighbours are near each other, and nested groups of near ranks.
//
//   ranks       0 1 2 3 4                       level 0   hosts      0 2 | 1 3 4
//   on hosts    a b a b b     order 0 2 1 3 4   level 1   caches     0 2 | 1 3 | 4
//   in caches   0 0 0 0 1
//
// A position is an index in this order. A group is a run of positions. The groups of one level
// subdivide the groups of the next outer level.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topology/domain.h"

namespace tutti {

// An immutable value, cheap to copy. Levels are numbered from 0, the outermost. Each level has at
// least two groups, and at least one group of several ranks.
class Layout {
 public:
  Layout() = default;  // the ranks in rank order, without groups
  // Orders the ranks by the switches above their hosts (as far as these are known for all), then by
  // host, NUMA node and last-level cache. A level that is unknown for some rank of a host does not
  // divide that host. Within each group, racks, hosts and caches come in the order of their first
  // ranks.
  static Layout of(std::span<const Place> ranks);
  // Groups `each` consecutive ranks; the last group may have fewer.
  static Layout equal(int ranks, int each);
  static Layout of_sizes(std::span<const int> sizes);

  // Returns true if each rank is at the position with its own index.
  bool in_order() const { return !tree_ || tree_->rank_at.empty(); }
  int rank_at(int position) const { return in_order() ? position : find(tree_->rank_at, position); }
  int position_of(int rank) const { return in_order() ? rank : find(tree_->position_of, rank); }
  // Returns the layout of positions: this one, with each rank replaced by its position.
  Layout of_positions() const;
  // Returns this layout if it is in rank order, otherwise a layout without groups.
  Layout in_rank_order() const { return in_order() ? *this : Layout(); }

  int levels() const { return tree_ ? static_cast<int>(tree_->starts.size()) : 0; }
  int groups(int level) const { return static_cast<int>(starts(level).size()) - 1; }
  int group_of(int level, int position) const;
  int first(int level, int group) const { return find(starts(level), group); }
  int size(int level, int group) const { return first(level, group + 1) - first(level, group); }
  int smallest(int level) const;
  int largest(int level) const;
  bool even(int level) const { return smallest(level) == largest(level); }
  // Returns this layout without the levels above the hosts; the order is kept.
  Layout of_hosts() const;
  // Returns the layout of one rank per group of `level`, divided by the levels outside that level.
  Layout outside(int level) const;

  bool operator==(const Layout& other) const;

 private:
  struct Tree {
    std::vector<int> rank_at;  // by position; empty: in order
    std::vector<int> position_of;
    // By level: the first position of each group, followed by the number of ranks.
    std::vector<std::vector<int>> starts;
    int above_hosts = 0;  // number of levels above the hosts
    bool operator==(const Tree&) const = default;
  };
  static Layout from(Tree tree);
  static int find(const std::vector<int>& values, int index) {
    return values[static_cast<size_t>(index)];
  }
  const std::vector<int>& starts(int level) const {
    return tree_->starts[static_cast<size_t>(level)];
  }
  std::shared_ptr<const Tree> tree_;  // null: no information
};

// Formats as "groups of 4" or "groups of 3, 3, 2 in groups of 6, 2"; empty if there are none.
std::string to_text(const Layout& layout);

}  // namespace tutti
