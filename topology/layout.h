// In which order ranks are taken so that neighbours are near each other, and which groups they form
// there.
//
//   ranks       0 1 2 3 4                       level 0   hosts      0 2 | 1 3 4
//   on hosts    a b a b b     order 0 2 1 3 4   level 1   caches     0 2 | 1 3 | 4
//   in caches   0 0 0 0 1
//
// A position is a place in this order. Groups are runs of positions; those of a level are cut from
// those of the level outside it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topology/domain.h"

namespace tutti {

// An immutable value, cheap to copy. Levels are numbered from 0, the outermost; all that have
// groups to tell apart, and some group of several ranks.
class Layout {
 public:
  Layout() = default;  // the ranks in their order, in no groups
  // By the switches above the hosts, as far as these are known of all, then by host, by NUMA node,
  // and by last-level cache; what is not known of each rank of a host does not divide that host.
  // Racks, hosts, and places on a host, come in the order of their first ranks.
  static Layout of(std::span<const Place> ranks);
  // Consecutive ranks, so many in each group; the last one may have fewer.
  static Layout equal(int ranks, int each);
  static Layout of_sizes(std::span<const int> sizes);

  // Whether every rank is at the position of its number.
  bool in_order() const { return !tree_ || tree_->rank_at.empty(); }
  int rank_at(int position) const { return in_order() ? position : find(tree_->rank_at, position); }
  int position_of(int rank) const { return in_order() ? rank : find(tree_->position_of, rank); }
  // These groups, of ranks that have the positions as their numbers.
  Layout of_positions() const;
  // What is left of it where ranks must be taken in the order of their numbers.
  Layout in_rank_order() const { return in_order() ? *this : Layout(); }

  int levels() const { return tree_ ? static_cast<int>(tree_->starts.size()) : 0; }
  int groups(int level) const { return static_cast<int>(starts(level).size()) - 1; }
  int group_of(int level, int position) const;
  int first(int level, int group) const { return find(starts(level), group); }
  int size(int level, int group) const { return first(level, group + 1) - first(level, group); }
  int smallest(int level) const;
  int largest(int level) const;
  bool even(int level) const { return smallest(level) == largest(level); }
  // Without the levels above the hosts, in the same order.
  Layout of_hosts() const;
  // Of ranks that stand for the groups of a level: how the levels outside it divide them.
  Layout outside(int level) const;

  bool operator==(const Layout& other) const;

 private:
  struct Tree {
    std::vector<int> rank_at;  // by position; empty: in order
    std::vector<int> position_of;
    // By level: the first positions of its groups, and the end.
    std::vector<std::vector<int>> starts;
    int above_hosts = 0;  // so many of these levels
    bool operator==(const Tree&) const = default;
  };
  static Layout from(Tree tree);
  static int find(const std::vector<int>& values, int index) {
    return values[static_cast<size_t>(index)];
  }
  const std::vector<int>& starts(int level) const {
    return tree_->starts[static_cast<size_t>(level)];
  }
  std::shared_ptr<const Tree> tree_;  // null: nothing to tell
};

// "groups of 4", "groups of 3, 3, 2 in groups of 6, 2"; empty where there are none.
std::string to_text(const Layout& layout);

}  // namespace tutti
