// NCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE; RCCL's too): system, cpu, pci, gpu,
// nvlink or xgmi, nic, net.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// What each `cpu` has (a NUMA node) becomes a part of the graph; each `net` becomes a card that is
// linked to "network", a switch that stands for what is outside. Links that NCCL takes for granted
// (between all NUMA nodes of a system) are there, too. GPUs are numbered by `dev`, or else by bus.
// `file` is the name for messages. Throws Error(invalid_argument) that names the line.
Graph parse_nccl_topology(std::string_view xml, const std::string& file);

}  // namespace tutti
