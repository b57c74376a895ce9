#include "collectives/expression.h"

#include <bit>

namespace tutti {

namespace {

std::vector<int> ranks_in(const std::vector<uint64_t>& words) {
  std::vector<int> ranks;
  for (size_t word = 0; word < words.size(); ++word) {
    for (uint64_t left = words[word]; left != 0; left &= left - 1) {
      ranks.push_back(static_cast<int>(word * 64) + std::countr_zero(left));
    }
  }
  return ranks;
}

}  // namespace

Expressions::Id Expressions::add(std::unordered_map<uint64_t, Id>& known, uint64_t key,
                                 const Node& node) {
  const auto [place, is_new] = known.try_emplace(key, static_cast<Id>(nodes_.size()));
  if (is_new) nodes_.push_back(node);
  return place->second;
}

Expressions::Id Expressions::leaf(int32_t rank, int32_t chunk) {
  return add(leaves_, key(rank, chunk),
             {.chunk = chunk, .left = kNothing, .right = rank, .set = single(rank)});
}

Expressions::Id Expressions::combine(Id left, Id right) {
  return add(inner_, key(left, right),
             {.chunk = chunk_of(left), .left = left, .right = right, .set = united(left, right)});
}

Expressions::Id Expressions::rounded(Id id) {
  const Node node = nodes_[id];
  if (node.left == kNothing || node.right == kNothing) return id;
  return add(inner_, key(id, kNothing),
             {.chunk = node.chunk, .left = id, .right = kNothing, .set = node.set});
}

Expressions::Id Expressions::canonical(int32_t chunk, int32_t first, int32_t last) {
  if (last - first == 1) return leaf(first, chunk);
  const auto size = static_cast<uint32_t>(last - first);
  const auto middle = first + static_cast<int32_t>(std::bit_floor(size - 1));
  const Id left = canonical(chunk, first, middle);
  return combine(left, canonical(chunk, middle, last));
}

int32_t Expressions::number_of(std::vector<uint64_t> set) {
  const auto number = static_cast<int32_t>(numbers_.size());
  const auto [place, is_new] = numbers_.try_emplace(std::move(set), number);
  if (is_new) sets_.insert(sets_.end(), place->first.begin(), place->first.end());
  return place->second;
}

int32_t Expressions::single(int32_t rank) {
  const auto [place, is_new] = unions_.try_emplace(key(rank, kNothing), 0);
  if (is_new) {
    std::vector<uint64_t> set(words_, 0);
    set[rank / 64] |= uint64_t{1} << (rank % 64);
    place->second = number_of(std::move(set));
  }
  return place->second;
}

int32_t Expressions::united(Id a, Id b) {
  const auto [place, is_new] = unions_.try_emplace(key(nodes_[a].set, nodes_[b].set), 0);
  if (is_new) {
    std::vector<uint64_t> set(bits(a), bits(a) + words_);
    for (int32_t word = 0; word < words_; ++word) set[word] |= bits(b)[word];
    place->second = number_of(std::move(set));
  }
  return place->second;
}

bool Expressions::overlap(Id a, Id b) const {
  for (int32_t word = 0; word < words_; ++word) {
    if ((bits(a)[word] & bits(b)[word]) != 0) return true;
  }
  return false;
}

std::vector<int> Expressions::contributors(Id id) const {
  return ranks_in({bits(id), bits(id) + words_});
}

std::vector<int> Expressions::in_both(Id a, Id b) const {
  std::vector<uint64_t> set(bits(a), bits(a) + words_);
  for (int32_t word = 0; word < words_; ++word) set[word] &= bits(b)[word];
  return ranks_in(set);
}

}  // namespace tutti
