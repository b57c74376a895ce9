#include "training/parallel/averaging/gossip.h"

#include <algorithm>

#include "training/parallel/averaging/peers.h"

namespace tutti::training {

Gossip::Gossip(ParameterStorage& storage, const SyncOptions& options, uint64_t seed)
    : Averaging(storage, options),
      seed_(seed),
      values_(storage),
      memory_(ranks().allocate<float>(
          static_cast<size_t>(copies_of_values(options) * values_.size()))) {}

std::span<float> Gossip::row(int index) const {
  return {memory_.get() + index * values_.size(), static_cast<size_t>(values_.size())};
}

void Gossip::exchange(int64_t update) {
  const int size = ranks().size();
  if (size == 1) return;
  const auto from = std::chrono::steady_clock::now();
  const auto own = static_cast<size_t>(ranks().rank());
  values_.read(0, row(0));
  switch (options().graph) {
    case GossipGraph::complete:
      average({row(0).data(), row(0).size(), DType::f32});
      break;
    case GossipGraph::ring:
      average_with_neighbours();
      break;
    case GossipGraph::exponential: {
      const std::vector<int> targets = exponential_targets(size, update);
      average_with(targets[own],
                   static_cast<int>(std::ranges::find(targets, ranks().rank()) - targets.begin()));
      break;
    }
    case GossipGraph::random: {
      const int partner = random_pairs(size, seed_, update)[own];
      if (partner != ranks().rank()) average_with(partner, partner);
      break;
    }
  }
  values_.write(0, row(0));
  observe_span("exchange of values", 0, from);
}

// If there are two ranks, both neighbours are the same rank, and the ranks average as a pair.
void Gossip::average_with_neighbours() {
  const int left = left_of(ranks().rank(), ranks().size());
  const int right = right_of(ranks().rank(), ranks().size());
  if (left == right) return average_with(right, left);
  exchange_rows(row(0), right, row(1), left);
  exchange_rows(row(0), left, row(2), right);
  const std::span<float> own = row(0);
  for (size_t i = 0; i < own.size(); ++i) {
    own[i] = (own[i] + (row(1)[i] + row(2)[i])) / 3;
  }
}

void Gossip::average_with(int to, int from) {
  exchange_rows(row(0), to, row(1), from);
  average_pair(row(0), row(1));
}

}  // namespace tutti::training
