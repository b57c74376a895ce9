// Reads NCCL's and RCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE). Their XML elements
// are system, cpu, pci, gpu, nvlink or xgmi, nic, and net.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// Parses the file. Each `cpu` (a NUMA node) becomes a part of the graph with its devices; each
// `net` becomes a card that is linked to "network", a switch that represents everything outside.
// Links that NCCL assumes (between all NUMA nodes of a host) are added. GPUs are numbered by `dev`
// or, without it, by bus. `file`: its name in messages. Throws Error(invalid_argument) that names
// the line.
Graph parse_nccl_topology(std::string_view xml, const std::string& file);

}  // namespace tutti
