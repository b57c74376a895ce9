// Rings and trees that fit a graph: each is a channel, and all channels together use no link beyond
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
// well (cycles.h). Deterministic: all ranks that search the same graph find the
// same.
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
  std::vector<int> order;    // of ranks; a host's come together
  std::vector<int> parents;  // of trees, by rank; -1: the root
  std::vector<int> cards;    // nodes, by host; empty on one host
  // Each as often as it is used, in the direction of the results. Of hosts that are alike, the
  // links of the first one stand for those of all.
  std::vector<Arc> arcs;
};

struct Channels {
  ChannelKind kind = ChannelKind::ring;
  std::vector<Channel> channels;
  double GBps = 0;  // of each of them

  double total_GBps() const { return GBps * static_cast<double>(channels.size()); }
};

// What the search found where it allowed so far a path.
struct Relaxation {
  PathType allowed = PathType::LOC;
  int channels = 0;  // 0: no more bandwidth than with nearer paths
  double GBps = 0;   // of each
};

struct ChannelSearch {
  Channels found;
  std::vector<Relaxation> relaxations;  // the last one with channels was taken
};

// `ranks`: their nodes (Graph::rank_nodes()). At most 32 channels. Throws Error(invalid_argument)
// that names two nodes between which there is no way, and Error(unsupported) for more than 1024
// ranks that cards do not divide by host.
ChannelSearch find_channels(const Graph& graph, std::span<const int> ranks, ChannelKind kind);

// For people: what was found at each relaxation, and why the next followed; lines.
std::string to_text(const ChannelSearch& search);

// What each direction of a link carries when all channels run at their bandwidth, by arc.
std::vector<double> use_of_arcs(const Graph& graph, const Channels& channels);

}  // namespace tutti
