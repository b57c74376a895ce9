// Rings and trees that fit a graph: each channel is an order of the ranks, and all channels together
// use no link beyond what it carries.
//
//      ring 0: 0 1 2 3          a ring sends from each rank to the next, and from the last to the
//      ring 1: 0 3 2 1          first; a tree is a chain here: the reduction goes along it, towards
//      tree 0: 0 1 2 3          its last rank, and the result comes back the other way
//
// Found as NCCL finds them (src/graph/search.cc): one bandwidth is tried after the other, and ever
// farther paths are allowed; of each try, as many channels as fit are found by a bounded search with
// backtracking, which takes their bandwidth from the links they use. What has the most bandwidth in
// all is taken. Deterministic: all ranks that search the same graph find the same.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/route.h"

namespace tutti {

enum class ChannelKind { ring, tree };
std::string_view name(ChannelKind kind);

struct Channels {
  ChannelKind kind = ChannelKind::ring;
  std::vector<std::vector<int>> orders;  // of ranks (Graph::rank_nodes()), one for each channel
  double GBps = 0;                       // of each of them
  PathType farthest = PathType::LOC;     // path that they use

  double total_GBps() const { return GBps * static_cast<double>(orders.size()); }
};

// One try of the search that was better than all before it, or that ended a kind of paths.
struct Relaxation {
  PathType allowed = PathType::LOC;
  int channels = 0;
  double GBps = 0;  // of each
  bool taken = false;
};

struct ChannelSearch {
  Channels found;
  std::vector<Relaxation> tries;
};

// Of a graph whose ranks are all connected; of no ranks, none. At most 32 channels.
// Throws Error(invalid_argument) that names two ranks between which there is no way.
ChannelSearch find_channels(const Graph& graph, ChannelKind kind);

// For people: what each try found, and why the next was made. Lines that end with a newline.
std::string to_text(const ChannelSearch& search);

// What each direction of a link carries when all channels run at their bandwidth, by arc.
std::vector<double> use_of_arcs(const Graph& graph, const Channels& channels);

}  // namespace tutti
