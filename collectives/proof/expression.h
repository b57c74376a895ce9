// What a chunk holds, as a formula: an input chunk of some rank, two formulas combined, one rounded
// to the element type, one divided by the number of ranks that it combines, or an input chunk that
// is still to be scaled.
//
// Equal formulas have equal ids (the graph is hash-consed), so comparing the order of summation on
// two ranks is comparing two numbers.
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

  // Input chunk `chunk` of `rank`.
  Id leaf(int32_t rank, int32_t chunk);
  // left op right; both are of the same chunk, and do not overlap.
  Id combine(Id left, Id right);
  // An input, and what is rounded already, stay what they are.
  Id rounded(Id id);
  // Divided, and then rounded to an element.
  Id mean(Id id);
  bool is_mean(Id id) const { return has_mark(id, kMean); }
  // An input that must not be used before it is scaled; what it is when it has been.
  Id unscaled(Id leaf);
  bool is_unscaled(Id id) const { return has_mark(id, kUnscaled); }
  Id scaled(Id id) const { return nodes_[id].left; }
  // Whether it is the canonical tree over ranks 0 to ranks - 1, or its mean, rounded at its end
  // only.
  bool is_canonical(Id id, int32_t ranks) const;

  int32_t chunk_of(Id id) const { return nodes_[id].chunk; }
  // A formula's parts: an input of one rank, or two formulas combined; else part() of it is
  // rounded, after it was divided where it is a mean.
  bool is_leaf(Id id) const { return nodes_[id].left == kNothing; }
  bool is_combined(Id id) const { return !is_leaf(id) && nodes_[id].right >= 0; }
  int32_t rank_of(Id leaf) const { return nodes_[leaf].right; }
  Id part(Id id) const { return nodes_[id].left; }
  Id right_part(Id id) const { return nodes_[id].right; }
  // On the longest way from an input to the result.
  int32_t roundings(Id id) const { return nodes_[id].roundings; }
  // The ranks whose inputs it holds, ascending.
  std::vector<int> contributors(Id id) const;
  bool holds_exactly(Id id, int32_t ranks) const;  // ranks 0 to ranks - 1
  std::vector<int> in_both(Id a, Id b) const;
  bool overlap(Id a, Id b) const;

 private:
  static constexpr Id kMean = -2;
  static constexpr Id kUnscaled = -3;
  struct Node {
    int32_t chunk;
    Id left;      // kNothing: a leaf
    Id right;     // a leaf's rank; kNothing: left, rounded; kMean: left, divided; kUnscaled
    int32_t set;  // of contributors
    // The ranks first to last - 1 that it is the canonical tree over, unrounded; none if it is not.
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
  // Equal sets have equal numbers.
  int32_t number_of(std::vector<uint64_t> set);
  int32_t single(int32_t rank);
  int32_t united(Id a, Id b);

  struct HashSet {
    size_t operator()(const std::vector<uint64_t>& set) const { return fnv_of_words(set); }
  };

  int32_t ranks_;
  int32_t words_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> sets_;  // words_ each
  std::unordered_map<std::vector<uint64_t>, int32_t, HashSet> numbers_;
  std::unordered_map<uint64_t, int32_t> unions_;
  std::unordered_map<uint64_t, Id> leaves_;
  std::unordered_map<uint64_t, Id> inner_;
};

}  // namespace tutti
