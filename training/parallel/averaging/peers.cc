#include "training/parallel/averaging/peers.h"

#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

#include "training/core/random.h"

namespace tutti::training {
namespace {

// Returns the index-th random number of an exchange, in [0, limit).
int draw(uint64_t seed, int64_t exchange, int index, int limit) {
  const uint64_t bits =
      random_bits(seed, static_cast<uint64_t>(exchange), static_cast<uint64_t>(index));
  return static_cast<int>(scale_below(bits, static_cast<uint64_t>(limit)));
}

std::vector<int> random_order(int ranks, uint64_t seed, int64_t exchange) {
  std::vector<int> order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  for (int last = ranks - 1; last > 0; --last) {
    const int other = draw(seed, exchange, last, last + 1);
    std::swap(order[static_cast<size_t>(last)], order[static_cast<size_t>(other)]);
  }
  return order;
}

}  // namespace

std::vector<int> exponential_targets(int ranks, int64_t exchange) {
  std::vector<int> targets(static_cast<size_t>(ranks));
  const int powers = ranks > 1 ? std::bit_width(static_cast<unsigned>(ranks - 1)) : 1;
  const int distance = 1 << (exchange % powers);
  for (int rank = 0; rank < ranks; ++rank) {
    targets[static_cast<size_t>(rank)] = (rank + distance) % ranks;
  }
  return targets;
}

std::vector<int> random_targets(int ranks, uint64_t seed, int64_t exchange) {
  std::vector<int> targets(static_cast<size_t>(ranks));
  if (ranks == 1) return targets;
  for (int rank = 0; rank < ranks; ++rank) {
    targets[static_cast<size_t>(rank)] = (rank + 1 + draw(seed, exchange, rank, ranks - 1)) % ranks;
  }
  return targets;
}

std::vector<int> random_pairs(int ranks, uint64_t seed, int64_t exchange) {
  const std::vector<int> order = random_order(ranks, seed, exchange);
  std::vector<int> partners(order.size());
  std::iota(partners.begin(), partners.end(), 0);
  for (size_t i = 0; i + 1 < order.size(); i += 2) {
    partners[static_cast<size_t>(order[i])] = order[i + 1];
    partners[static_cast<size_t>(order[i + 1])] = order[i];
  }
  return partners;
}

int random_answerer(int ranks, uint64_t seed, int64_t exchange, int asker) {
  return 1 + 2 * draw(seed, exchange, asker, ranks / 2);
}

std::vector<bool> random_members(int ranks, int count, uint64_t seed, int64_t exchange) {
  const std::vector<int> order = random_order(ranks, seed, exchange);
  std::vector<bool> drawn(order.size());
  for (int i = 0; i < count; ++i) drawn[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  return drawn;
}

int left_of(int rank, int ranks) { return (rank + ranks - 1) % ranks; }
int right_of(int rank, int ranks) { return (rank + 1) % ranks; }

}  // namespace tutti::training
