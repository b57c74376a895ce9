// A host as hwloc sees it, as a graph: NUMA nodes with their cores, PCI switches, GPUs and cards
// where they are, NVLinks where hwloc knows of them.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// This host as it is now, with its cards' speeds: with all of its cores, or only those that this
// process may use. Throws Error(system).
enum class Cores { all, allowed };
Graph graph_of_this_host(Cores cores);
// What `lstopo file.xml` wrote. `file` is the name for messages. Throws Error(invalid_argument).
Graph parse_hwloc_xml(std::string_view xml, const std::string& file);
// "package:2 numa:1 core:4 pu:2": hwloc's synthetic description. Throws Error(invalid_argument).
Graph synthetic_host_graph(const std::string& description);

}  // namespace tutti
