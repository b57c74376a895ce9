// Where graphs come from.
#pragma once

#include <string>

#include "topology/graph.h"

namespace tutti {

// "" is this host; "synthetic:package:2 core:4 pu:1" a host that hwloc describes so; anything else
// a file, whose kind is told by what is in it: NCCL's topology XML, hwloc's XML, JSON as `tutti
// topo
// --json` writes it, or lines of nodes and links (graph_text.h).
// Throws Error(invalid_argument) that names file and line, Error(system) for what cannot be read.
Graph load_graph(const std::string& source);

// So many hosts that are all like the first one of `host`. Their networks are one.
Graph repeat_host(const Graph& host, int hosts);

}  // namespace tutti
