// Describes a graph and its channels to people: as text, as a matrix of path types, and as a
// picture.
#pragma once

#include <span>
#include <string>

#include "topology/channels.h"
#include "topology/graph.h"

namespace tutti {

// Returns one line without newline: "2 hosts, each with 2 NUMA nodes, 8 GPUs, 4 cards; 1 network
// switch".
std::string summary(const Graph& graph);

// Returns a line per rank: its node, and its nearest NUMA node and card.
std::string table_of_ranks(const Graph& graph, std::span<const int> ranks);

// Returns a table of the path types between each two nodes, which are the ranks and the cards, as
// `nvidia-smi topo -m` does. It contains at most the first 32 nodes.
std::string matrix_of_paths(const Graph& graph, std::span<const int> ranks);

// Returns a line that names the cards with unknown bandwidth; empty if there are none.
std::string unknown_speeds(const Graph& graph);

// Returns a line per channel, the bounds on the channels, and the steps of the search.
std::string describe(const Graph& graph, std::span<const int> ranks, const ChannelSearch& search);

// Returns a picture of the machine (SVG), with rings and trees in colours below their ranks. Shows
// at most the first four hosts.
std::string to_svg(const Graph& graph, std::span<const int> ranks, const Channels& rings,
                   const Channels& trees, const std::string& title);

}  // namespace tutti
