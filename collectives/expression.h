// What a chunk holds, as a formula: an input chunk of some rank, or two formulas combined.
//
// Equal formulas have equal ids (the graph is hash-consed), so comparing the order of summation on
// two ranks is comparing two numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tutti {

class Expressions {
 public:
  using Id = int32_t;
  static constexpr Id kNothing = -1;  // never written

  explicit Expressions(int32_t ranks) : ranks_(ranks), words_((ranks + 63) / 64) {}

  // Input chunk `chunk` of `rank`.
  Id leaf(int32_t rank, int32_t chunk);
  // left op right; both are of the same chunk.
  Id combine(Id left, Id right);
  // The canonical tree over all ranks' chunk `chunk`.
  Id canonical(int32_t chunk) { return canonical(chunk, 0, ranks_); }

  int32_t chunk_of(Id id) const { return nodes_[id].chunk; }
  // The ranks whose inputs it holds, ascending.
  std::vector<int> contributors(Id id) const { return ranks_in(id, kNothing); }
  std::vector<int> in_both(Id a, Id b) const { return ranks_in(a, b); }
  std::vector<int> missing(Id id) const;
  bool overlap(Id a, Id b) const;

 private:
  struct Node {
    int32_t chunk;
    Id left;   // kNothing: a leaf
    Id right;  // a leaf's rank
  };
  static uint64_t key(int32_t a, int32_t b) {
    return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  }
  Id canonical(int32_t chunk, int32_t first, int32_t last);
  bool holds(Id id, int32_t rank) const {
    return (bits_[static_cast<size_t>(id) * words_ + rank / 64] >> (rank % 64) & 1) != 0;
  }
  // Of a, and of b where it is not kNothing.
  std::vector<int> ranks_in(Id a, Id b) const;
  Id add(const Node& node);

  int32_t ranks_;
  int32_t words_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> bits_;  // words_ for each node: its contributors
  std::unordered_map<uint64_t, Id> leaves_;
  std::unordered_map<uint64_t, Id> inner_;
};

}  // namespace tutti
