#include "collectives/proof/expression.h"

#include <algorithm>
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
             {.chunk = chunk,
              .left = kNothing,
              .right = rank,
              .set = single(rank),
              .first = rank,
              .last = rank + 1});
}

// Joins two formulas. The left half of a canonical tree over n ranks has as many ranks as the
// largest power of two below n.
Expressions::Id Expressions::combine(Id left, Id right) {
  const Node& a = nodes_[left];
  const Node& b = nodes_[right];
  const auto size = static_cast<uint32_t>(b.last - a.first);
  const bool canonical = a.last > a.first && b.last > b.first && a.last == b.first &&
                         a.last - a.first == static_cast<int32_t>(std::bit_floor(size - 1));
  return add(inner_, key(left, right),
             {.chunk = a.chunk,
              .left = left,
              .right = right,
              .set = united(left, right),
              .first = canonical ? a.first : 0,
              .last = canonical ? b.last : 0,
              .roundings = std::max(a.roundings, b.roundings)});
}

Expressions::Id Expressions::rounded(Id id) {
  const Node& node = nodes_[id];
  return node.left == kNothing || node.right < 0 ? id : marked(id, kNothing);
}

Expressions::Id Expressions::mean(Id id) { return marked(id, kMean); }
Expressions::Id Expressions::unscaled(Id leaf) { return marked(leaf, kUnscaled); }

Expressions::Id Expressions::marked(Id id, Id mark) {
  const Node node = nodes_[id];
  return add(inner_, key(id, mark),
             {.chunk = node.chunk,
              .left = id,
              .right = mark,
              .set = node.set,
              .first = 0,
              .last = 0,
              .roundings = node.roundings + (mark == kUnscaled ? 0 : 1)});
}

bool Expressions::is_canonical(Id id, int32_t ranks) const {
  const bool is_rounded = is_mean(id) || has_mark(id, kNothing);
  const Node& tree = nodes_[is_rounded ? nodes_[id].left : id];
  return tree.first == 0 && tree.last == ranks && (is_rounded || ranks == 1);
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

bool Expressions::holds_exactly(Id id, int32_t ranks) const {
  for (int32_t word = 0; word < words_; ++word) {
    const int32_t in_word = std::clamp(ranks - word * 64, 0, 64);
    const uint64_t wanted = in_word == 64 ? ~uint64_t{0} : (uint64_t{1} << in_word) - 1;
    if (bits(id)[word] != wanted) return false;
  }
  return true;
}

std::vector<int> Expressions::in_both(Id a, Id b) const {
  std::vector<uint64_t> set(bits(a), bits(a) + words_);
  for (int32_t word = 0; word < words_; ++word) set[word] &= bits(b)[word];
  return ranks_in(set);
}

}  // namespace tutti
