#include "training/parallel/averaging/gossip.h"

#include <algorithm>

#include "base/reduce_op.h"
#include "training/parallel/averaging/peers.h"

namespace tutti::training {

Gossip::Gossip(ParameterStorage& storage, GossipGraph graph, uint64_t seed)
    : Averaging(storage),
      graph_(graph),
      seed_(seed),
      values_(storage),
      rows_(graph == GossipGraph::complete ? 1
            : graph == GossipGraph::ring   ? 3
                                           : 2),
      memory_(ranks().allocate<float>(static_cast<size_t>(rows_ * values_.size()))) {}

std::span<float> Gossip::row(int index) const {
  return {memory_.get() + index * values_.size(), static_cast<size_t>(values_.size())};
}

int64_t Gossip::bytes() const {
  return rows_ * values_.size() * static_cast<int64_t>(sizeof(float));
}

void Gossip::exchange(int64_t update) {
  const int size = ranks().size();
  if (size == 1) return;
  const auto from = std::chrono::steady_clock::now();
  const auto own = static_cast<size_t>(ranks().rank());
  values_.read(0, row(0));
  switch (graph_) {
    case GossipGraph::complete:
      ranks().all_reduce(row(0), ReduceOp::avg);
      count_all_reduce(values_.size());
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
  tell("exchange of values", 0, from);
}

// Two ranks are one pair.
void Gossip::average_with_neighbours() {
  const int left = left_of(ranks().rank(), ranks().size());
  const int right = right_of(ranks().rank(), ranks().size());
  if (left == right) return average_with(right, left);
  trade(row(0), right, row(1), left);
  trade(row(0), left, row(2), right);
  const std::span<float> own = row(0);
  for (size_t i = 0; i < own.size(); ++i) {
    own[i] = (own[i] + (row(1)[i] + row(2)[i])) / 3;
  }
}

void Gossip::average_with(int to, int from) {
  trade(row(0), to, row(1), from);
  std::ranges::transform(row(0), row(1), row(0).begin(),
                         [](float own, float other) { return (own + other) / 2; });
}

}  // namespace tutti::training
