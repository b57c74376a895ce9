#include "collectives/expression.h"

#include <bit>

namespace tutti {

Expressions::Id Expressions::add(const Node& node) {
  nodes_.push_back(node);
  bits_.resize(nodes_.size() * words_, 0);
  return static_cast<Id>(nodes_.size() - 1);
}

Expressions::Id Expressions::leaf(int32_t rank, int32_t chunk) {
  const auto [place, is_new] = leaves_.try_emplace(key(rank, chunk), kNothing);
  if (!is_new) return place->second;
  const Id id = add({.chunk = chunk, .left = kNothing, .right = rank});
  bits_[static_cast<size_t>(id) * words_ + rank / 64] |= uint64_t{1} << (rank % 64);
  return place->second = id;
}

Expressions::Id Expressions::combine(Id left, Id right) {
  const auto [place, is_new] = inner_.try_emplace(key(left, right), kNothing);
  if (!is_new) return place->second;
  const Id id = add({.chunk = chunk_of(left), .left = left, .right = right});
  uint64_t* const bits = &bits_[static_cast<size_t>(id) * words_];
  for (int32_t word = 0; word < words_; ++word) {
    bits[word] = bits_[static_cast<size_t>(left) * words_ + word] |
                 bits_[static_cast<size_t>(right) * words_ + word];
  }
  return place->second = id;
}

Expressions::Id Expressions::canonical(int32_t chunk, int32_t first, int32_t last) {
  if (last - first == 1) return leaf(first, chunk);
  const auto size = static_cast<uint32_t>(last - first);
  const auto middle = first + static_cast<int32_t>(std::bit_floor(size - 1));
  const Id left = canonical(chunk, first, middle);
  return combine(left, canonical(chunk, middle, last));
}

bool Expressions::overlap(Id a, Id b) const {
  for (int32_t word = 0; word < words_; ++word) {
    if ((bits_[static_cast<size_t>(a) * words_ + word] &
         bits_[static_cast<size_t>(b) * words_ + word]) != 0) {
      return true;
    }
  }
  return false;
}

std::vector<int> Expressions::ranks_in(Id a, Id b) const {
  std::vector<int> ranks;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    if (holds(a, rank) && (b == kNothing || holds(b, rank))) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> Expressions::missing(Id id) const {
  std::vector<int> ranks;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    if (!holds(id, rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace tutti
