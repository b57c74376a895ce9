// Rings and trees that fit a graph. Each is a channel; no link has to carry more than its bandwidth
// when all channels are used at once.
//
//      ring   0 -> 1 -> 2 -> 3 -> 0    each rank sends to the next
//      tree   0 -> 1 -> 2 -> 3         on one host a chain that starts at its root: results travel
//                                      from the root, partial sums towards it
//
// Across hosts, a ring enters and leaves each host by a card near the rank where it enters, and the
// chains of a tree are joined by a binary tree of the hosts. Over more than two hosts trees come in
// pairs that use the same cards, and the hosts that are leaves of one are inner nodes of the other
// (Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
// 2009). Links between network switches are assumed to carry all that the cards send.
//
// The search is NCCL's (src/graph/search.cc). It tries the path types one after the other, the
// nearest first, and for each path type several bandwidths, the widest first. Each try packs as
// many channels as a bounded backtracking search finds room for on the links (channel_packing.h).
// The try with the highest total bandwidth wins. In meshes and tori, cycles that share no link are
// tried as well (cycles.h). The search is deterministic: all ranks that search the same graph get
// the same result.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph.h"
#include "topology/route.h"

namespace tutti {

enum class ChannelKind { ring, tree };
std::string_view name(ChannelKind kind);

struct Channel {
  std::vector<int> order;    // ranks in order, grouped by host
  std::vector<int> parents;  // trees only: parent by rank; -1: the root
  std::vector<int> cards;    // card nodes, by host; empty on one host
  // Arcs that the channel uses, once per use, in the direction of the results. If hosts are equal,
  // the links of the first host represent the links of all hosts.
  std::vector<Arc> arcs;
};

struct Channels {
  ChannelKind kind = ChannelKind::ring;
  std::vector<Channel> channels;
  double GBps = 0;  // bandwidth per channel

  double total_GBps() const { return GBps * static_cast<double>(channels.size()); }
};

// The result of the search with one path type as the limit.
struct Relaxation {
  PathType allowed = PathType::LOC;
  int channels = 0;  // 0: no more bandwidth than with the nearer path types
  double GBps = 0;   // bandwidth per channel
};

struct ChannelSearch {
  Channels found;
  std::vector<Relaxation> relaxations;  // the last one with channels was chosen
};

// Finds at most 32 channels. `ranks`: graph nodes of the ranks (Graph::rank_nodes()). Throws
// Error(invalid_argument) that names two unconnected nodes, and Error(unsupported) if more than
// 1024 ranks must be searched together, because some host has no card.
ChannelSearch find_channels(const Graph& graph, std::span<const int> ranks, ChannelKind kind);

// Describes the search with a line per relaxation: the channels found, or that there was no
// improvement.
std::string to_text(const ChannelSearch& search);

// Returns the load of each arc, in 1e9 bytes per second, when all channels run at their bandwidth.
std::vector<double> use_of_arcs(const Graph& graph, const Channels& channels);

}  // namespace tutti
