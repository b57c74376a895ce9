// Builds the graph of a host from hwloc: NUMA nodes with their cores, PCI switches with GPUs and
// cards, and the NVLinks and xGMI links that NVML or hwloc reports.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// Reads this host's present state, including card speeds. Cores::all includes all cores,
// Cores::allowed only those that this process may use. Throws Error(system) if hwloc cannot read
// the host.
enum class Cores { all, allowed };
Graph graph_of_this_host(Cores cores);
// Reads the XML that `lstopo file.xml` writes. `file`: its name in messages. Throws
// Error(invalid_argument) for malformed XML.
Graph parse_hwloc_xml(std::string_view xml, const std::string& file);
// Builds a graph from hwloc's synthetic description, "package:2 numa:1 core:4 pu:2". Throws
// Error(invalid_argument).
Graph synthetic_host_graph(const std::string& description);

}  // namespace tutti
