// The content of a chunk as a formula. A formula is one of
//
//   - an input chunk of a rank, or an input chunk that has not been scaled yet;
//   - the combination of two formulas;
//   - a formula rounded to the element type;
//   - a formula divided by the number of ranks that it combines.
//
// Equal formulas have equal ids (the graph is hash-consed). So two ranks have summed in the same
// order if the ids of their results are equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace tutti {

class Expressions {
 public:
  using Id = int32_t;
  static constexpr Id kNothing = -1;  // never written

  explicit Expressions(int32_t ranks) : ranks_(ranks), words_((ranks + 63) / 64) {}

  // Returns input chunk `chunk` of `rank`.
  Id leaf(int32_t rank, int32_t chunk);
  // Returns left op right. Both are formulas of the same chunk without common contributors.
  Id combine(Id left, Id right);
  // Returns the formula rounded to an element. Rounding an input or a rounded formula changes
  // nothing.
  Id rounded(Id id);
  // Returns the formula divided and then rounded to an element.
  Id mean(Id id);
  bool is_mean(Id id) const { return has_mark(id, kMean); }
  // Return an input with or without its factor: unscaled() marks an input that must be scaled
  // before use; scaled() returns it scaled.
  Id unscaled(Id leaf);
  bool is_unscaled(Id id) const { return has_mark(id, kUnscaled); }
  Id scaled(Id id) const { return nodes_[id].left; }
  // Returns true if the formula is the canonical tree over ranks 0 .. ranks - 1, rounded only at
  // its root, or the mean of that tree.
  bool is_canonical(Id id, int32_t ranks) const;

  int32_t chunk_of(Id id) const { return nodes_[id].chunk; }
  // Describe the structure of a formula. It is an input (is_leaf), a combination of part() and
  // right_part() (is_combined), or otherwise part() rounded, after a division if is_mean().
  bool is_leaf(Id id) const { return nodes_[id].left == kNothing; }
  bool is_combined(Id id) const { return !is_leaf(id) && nodes_[id].right >= 0; }
  int32_t rank_of(Id leaf) const { return nodes_[leaf].right; }
  Id part(Id id) const { return nodes_[id].left; }
  Id right_part(Id id) const { return nodes_[id].right; }
  // Returns the number of roundings on the longest path from an input to the result.
  int32_t roundings(Id id) const { return nodes_[id].roundings; }
  // Returns the ranks whose inputs the formula contains, ascending.
  std::vector<int> contributors(Id id) const;
  // Returns true if the contributors are ranks 0 .. ranks - 1.
  bool holds_exactly(Id id, int32_t ranks) const;
  std::vector<int> in_both(Id a, Id b) const;
  bool overlap(Id a, Id b) const;

 private:
  static constexpr Id kMean = -2;
  static constexpr Id kUnscaled = -3;
  struct Node {
    int32_t chunk;
    Id left;  // left operand; kNothing: the node is a leaf
    // The right operand, if there are two. For a leaf, the rank of the input. If `left` is the only
    // operand, the operation applied to it: kNothing (rounding), kMean (division, then rounding) or
    // kUnscaled (an input that is still to be scaled).
    Id right;
    int32_t set;  // index of the set of contributors
    // If the node is an unrounded canonical tree, it is over ranks first .. last - 1; for other
    // nodes first == last.
    int32_t first;
    int32_t last;
    int32_t roundings = 0;
  };
  static uint64_t key(int32_t a, int32_t b) {
    return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  }
  bool has_mark(Id id, Id mark) const {
    return nodes_[id].left != kNothing && nodes_[id].right == mark;
  }
  Id marked(Id id, Id mark);
  Id add(std::unordered_map<uint64_t, Id>& known, uint64_t key, const Node& node);
  const uint64_t* bits(Id id) const { return &sets_[static_cast<size_t>(nodes_[id].set) * words_]; }
  // Returns the index of a set; equal sets have equal indices.
  int32_t number_of(std::vector<uint64_t> set);
  int32_t single(int32_t rank);
  int32_t united(Id a, Id b);

  struct HashSet {
    size_t operator()(const std::vector<uint64_t>& set) const { return fnv_of_words(set); }
  };

  int32_t ranks_;
  int32_t words_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> sets_;  // words_ words for each set
  std::unordered_map<std::vector<uint64_t>, int32_t, HashSet> numbers_;
  std::unordered_map<uint64_t, int32_t> unions_;
  std::unordered_map<uint64_t, Id> leaves_;
  std::unordered_map<uint64_t, Id> inner_;
};

}  // namespace tutti
