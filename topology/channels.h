// Rings and trees that fit a graph: each is a channel, and all channels together exceed no link's
// what it carries.
//
//      ring   0 -> 1 -> 2 -> 3 -> 0    each rank sends to the next
//      tree   0 -> 1 -> 2 -> 3         on one host a chain from its root: results go along it, what
//                                      is reduced comes the other way
//
// Over hosts, a ring enters and leaves each host by a card near the rank where it enters, and the
// chains of a tree hang on a binary tree of the hosts. Over more than two hosts trees come in pairs
// that use the same cards, and the hosts that are leaves of one are inside the other (Sanders,
// Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009). Links
// between network switches are taken to carry whatever the cards do.
//
// Found as NCCL finds them (src/graph/search.cc): ever farther paths are allowed, and one bandwidth
// is tried after the other; of each try, as many channels as fit are found by a bounded search with
// backtracking that takes their bandwidth from the links they use (channel_packing.h). What has the
// most bandwidth in all is taken. In meshes and tori cycles that share no link are looked for as
// well (cycles.h). Deterministic: all ranks that search the same graph get the same result.
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
  // The arcs used, once per use, in the direction of the results. For equal hosts, the links of the
  // first one represent all.
  std::vector<Arc> arcs;
};

struct Channels {
  ChannelKind kind = ChannelKind::ring;
  std::vector<Channel> channels;
  double GBps = 0;  // per channel

  double total_GBps() const { return GBps * static_cast<double>(channels.size()); }
};

// The result of the search for one limit on the paths.
struct Relaxation {
  PathType allowed = PathType::LOC;
  int channels = 0;  // 0: no more bandwidth than with nearer paths
  double GBps = 0;   // per channel
};

struct ChannelSearch {
  Channels found;
  std::vector<Relaxation> relaxations;  // the last one with channels was chosen
};

// `ranks`: graph nodes of the ranks (Graph::rank_nodes()). Finds at most 32 channels. Throws
// Error(invalid_argument) that names two unconnected nodes, and Error(unsupported) for more than
// 1024 ranks that cards do not divide by host.
ChannelSearch find_channels(const Graph& graph, std::span<const int> ranks, ChannelKind kind);

// Explains the search, a line per relaxation: the channels found, and the reason for the next one.
std::string to_text(const ChannelSearch& search);

// Returns the load of each arc when all channels run at their bandwidth.
std::vector<double> use_of_arcs(const Graph& graph, const Channels& channels);

}  // namespace tutti
