#include "collectives/algorithms/trees.h"

#include <algorithm>
#include <bit>

namespace tutti::algorithms {

KnomialTree knomial_tree(const Shape& shape, int32_t radix) {
  const int32_t p = shape.ranks;
  const auto group = [&](int64_t first, int64_t size) {
    KnomialTree::Group g{.first = static_cast<int32_t>(first),
                         .last = static_cast<int32_t>(std::min<int64_t>(first + size, p)),
                         .holder = static_cast<int32_t>(first)};
    if (g.first <= shape.root && shape.root < g.last) g.holder = shape.root;
    return g;
  };

  KnomialTree tree{.merges = {}, .own = group(shape.rank, 1)};
  for (int64_t size = 1; size < p; size *= radix) {
    const int64_t first = shape.rank - shape.rank % (size * radix);
    const KnomialTree::Group merged = group(first, size * radix);
    if (merged.holder != shape.rank) {
      tree.parent = merged.holder;
      break;
    }
    std::vector<KnomialTree::Group> groups;
    for (int64_t start = first; start < merged.last; start += size) {
      groups.push_back(group(start, size));
    }
    tree.own = merged;
    if (groups.size() == 1) continue;  // the last ranks, too few to merge at this size
    tree.children += static_cast<int32_t>(groups.size()) - 1;
    tree.merges.push_back(std::move(groups));
  }
  return tree;
}

// Returns the largest number of children. Rank 0 has the most, because its groups are complete; but
// if the root holds these groups instead, the root may have the most.
int32_t most_children(const Shape& shape, int32_t radix) {
  Shape at = shape;
  int32_t most = 1;
  for (const int32_t rank : {0, shape.root}) {
    at.rank = rank;
    most = std::max(most, knomial_tree(at, radix).children);
  }
  return most;
}

// Returns the size of the largest group that a non-root rank holds. It is the largest group that
// merges with one of the root's groups.
int32_t largest_group(const Shape& shape, int32_t radix) {
  Shape at = shape;
  at.rank = shape.root;
  const KnomialTree tree = knomial_tree(at, radix);
  int32_t largest = 1;
  for (const std::vector<KnomialTree::Group>& groups : tree.merges) {
    for (const KnomialTree::Group& group : groups) {
      if (group.holder != shape.root) largest = std::max(largest, group.last - group.first);
    }
  }
  return largest;
}

namespace {

// Returns a node of the first tree. If the right child would exceed n, the nearest descendant that
// does not exceed n takes its place.
TwoTreeNode in_order_node(int32_t label, int32_t n) {
  const int32_t bit = label & -label;
  TwoTreeNode node;
  node.parent = (label ^ bit) | (bit << 1);
  if (node.parent > n) node.parent = label ^ bit;
  if (bit > 1) node.left = label - bit / 2;
  for (int32_t offset = bit / 2; offset > 0 && node.right == 0; offset /= 2) {
    if (label + offset <= n) node.right = label + offset;
  }
  return node;
}

// Maps a label of the first tree to the label of the same node in the second tree.
int32_t in_second(int32_t label, int32_t n) {
  if (label == 0) return 0;
  return n % 2 == 0 ? n + 1 - label : label % n + 1;
}

}  // namespace

std::vector<int32_t> TwoTreeNode::children() const {
  std::vector<int32_t> labels;
  for (const int32_t child : {left, right}) {
    if (child != 0) labels.push_back(child);
  }
  return labels;
}

TwoTreeNode two_tree_node(int32_t tree, int32_t label, int32_t n) {
  if (tree == 0) return in_order_node(label, n);
  const bool mirror = n % 2 == 0;
  const TwoTreeNode node = in_order_node(mirror ? n + 1 - label : (label + n - 2) % n + 1, n);
  return {.parent = in_second(node.parent, n),
          .left = in_second(mirror ? node.right : node.left, n),
          .right = in_second(mirror ? node.left : node.right, n)};
}

int32_t two_tree_top(int32_t tree, int32_t n) {
  const auto top = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(n)));
  return tree == 0 ? top : in_second(top, n);
}

std::vector<Team> teams_of(int32_t ranks) {
  std::vector<Team> teams;
  for (int32_t first = 0; first < ranks; first += teams.back().size) {
    const auto size = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(ranks - first)));
    teams.push_back({.first = first, .size = size});
  }
  return teams;
}

}  // namespace tutti::algorithms
