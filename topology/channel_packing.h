// The core of the channel search: finds as many rings or chains through the same ranks as the links
// can carry together at a given bandwidth.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topology/channels.h"
#include "topology/graph.h"
#include "topology/route.h"

namespace tutti {

// A network card, through which a channel enters and leaves a host.
struct Card {
  int node = 0;
  size_t place = 0;  // index among the nodes of its host
  Arc out = 0;       // the arc into the network
  Arc in = 0;
  std::vector<Route> to;    // by rank: route from the card to the rank
  std::vector<Route> from;  // by rank: route from the rank to the card
  // By rank: route from the rank over NVLink to another rank's GPU that is nearer to the card, and
  // from there to the card (NCCL's PXN). The type is DIS for ranks without such a route.
  std::vector<Route> by_peer;
};

// The ranks through which a ring or chain is searched, and the routes between each two of them:
// the ranks of one host, or all ranks if some host has no card.
class Part {
 public:
  static constexpr size_t kMostRanks = 1024;

  // Finds the routes. `ranks`: graph nodes of the ranks. `host`: all nodes of their host, whose
  // cards are used; empty: no cards. Throws Error(invalid_argument) if two ranks are not connected,
  // or no rank is connected to a card, and Error(unsupported) for too many ranks.
  Part(const Graph& graph, std::span<const int> ranks, std::span<const int> host);

  int ranks() const { return static_cast<int>(routes_.size()); }
  const Route& route(int from, int to) const {
    return routes_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }
  const std::vector<Card>& cards() const { return cards_; }
  template <typename Visit>
  void for_each_route(Visit visit) const {
    for (int from = 0; from < ranks(); ++from) {
      for (int to = 0; to < ranks(); ++to) {
        if (from != to) visit(route(from, to));
      }
    }
  }

 private:
  void add_cards(const Graph& graph, std::span<const int> ranks, std::span<const int> host);
  void add_ways_by_peers(Card& card) const;
  std::vector<std::vector<Route>> routes_;
  std::vector<Card> cards_;
};

inline constexpr int kMostChannels = 32;

struct PackedChannel {
  std::vector<int> order;  // the part's ranks, in order
  int card = -1;           // index among the part's cards
  std::vector<Arc> arcs;
};

struct PackingTask {
  ChannelKind kind = ChannelKind::ring;
  // Farthest path type allowed between ranks, and between ranks and cards.
  PathType allowed = PathType::LOC;
  double GBps = 0;  // bandwidth per channel
  int most = 1;     // number of channels wanted
};

// Returns an upper bound on the number of channels, from the total bandwidth of each rank's links
// and of the cards. `capacity`: remaining bandwidth of each arc.
int most_channels(const Part& part, std::span<const double> capacity, const PackingTask& task);

// Finds channels that fit. `capacity`: remaining bandwidth of each arc. The search is bounded and
// may miss the maximum.
std::vector<PackedChannel> pack_channels(const Part& part, std::span<const double> capacity,
                                         const PackingTask& task);

}  // namespace tutti
