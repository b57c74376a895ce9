// A graph and its channels for people: words, the matrix of paths, and a picture.
#pragma once

#include <span>
#include <string>

#include "topology/channels.h"
#include "topology/graph.h"

namespace tutti {

// "2 hosts, each with 2 NUMA nodes, 8 GPUs, 4 cards; 1 network switch": one line without its end.
std::string summary(const Graph& graph);

// Ranks, their nodes and what is near them: a line for each.
std::string table_of_ranks(const Graph& graph, std::span<const int> ranks);

// How near any two ranks are, and ranks and cards: as `nvidia-smi topo -m` shows it.
std::string matrix_of_paths(const Graph& graph, std::span<const int> ranks);

// A line that names the cards of which nothing tells what they carry; empty where there are none.
std::string unknown_speeds(const Graph& graph);

// The channels, a line for each, what bounds them, and how the search came to them.
std::string describe(const Graph& graph, std::span<const int> ranks, const ChannelSearch& search);

// A picture of the machine (SVG), with rings and trees in colours below their ranks. Of many hosts,
// the first four.
std::string to_svg(const Graph& graph, std::span<const int> ranks, const Channels& rings,
                   const Channels& trees, const std::string& title);

}  // namespace tutti
