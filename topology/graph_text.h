// Graphs written by hand:
//
//   # two GPUs behind a switch
//   node numa0 numa_node
//   node switch0 pci_switch
//   node gpu0 gpu
//   node gpu1 gpu
//   node there gpu host=1
//   link numa0 switch0 pci 24GB/s
//   link gpu0 switch0 pci 24GB/s 0.3us
//   link gpu0 gpu1 nvlink 4x20GB/s
//   link gpu0 there network 100Gbit/s 2us
//
// units.h lists the units; 4x before a bandwidth means four links. Nodes of one kind on one host
// are numbered in the order of the file.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// Parses a graph in this notation. `file`: its name in messages. Throws Error(invalid_argument)
// that names the line.
Graph parse_graph_text(std::string_view text, const std::string& file);

}  // namespace tutti
