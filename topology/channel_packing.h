// The inside of the search for channels: as many orders of the ranks of one host as fit, of one
// bandwidth.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topology/channels.h"
#include "topology/graph.h"
#include "topology/route.h"

namespace tutti {

// By which a channel enters and leaves a host.
struct Card {
  int node = 0;
  size_t place = 0;  // among the nodes of its host
  Arc out = 0;       // into the network
  Arc in = 0;
  std::vector<Route> to;    // by rank
  std::vector<Route> from;  // by rank
  // By rank: over NVLink to another GPU, from which the card is near (NCCL's PXN). DIS where that
  // is of no use.
  std::vector<Route> by_peer;
};

// The ranks among which a channel runs before it goes on elsewhere, and all routes between them.
class Part {
 public:
  static constexpr size_t kMostRanks = 1024;

  // `ranks`: their nodes. `host`: all nodes of their host, whose cards they use; none: no cards.
  // Throws Error(invalid_argument) where two ranks are not connected, or no rank to a card, and
  // Error(unsupported) for too many ranks.
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
  std::vector<int> order;  // of the part's ranks
  int card = -1;           // of the part's
  std::vector<Arc> arcs;
};

struct PackingTask {
  ChannelKind kind = ChannelKind::ring;
  PathType allowed = PathType::LOC;  // between ranks, and to cards
  double GBps = 0;                   // of each channel
  int most = 1;                      // channels that are wanted
};

// However they run: no more than this fit, of each rank's links and of the cards.
int most_channels(const Part& part, std::span<const double> capacity, const PackingTask& task);

// `capacity`: of each arc. A bounded search that does not always find the most.
std::vector<PackedChannel> pack_channels(const Part& part, std::span<const double> capacity,
                                         const PackingTask& task);

}  // namespace tutti
