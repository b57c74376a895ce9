// Files that are graphs.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// Whether the text is one that parse_graph() takes, by how it begins.
bool is_graph_file(std::string_view text);

// The contents of a file, whose kind is told by what is in it: NCCL's topology XML, hwloc's XML,
// JSON as `tutti topo --json` writes it, or lines of nodes and links (graph_text.h). `file` is its
// name, for messages. Throws Error(invalid_argument) that names file and line.
Graph parse_graph(const std::string& text, const std::string& file);

// Of such a file. Throws Error(system), too, for what cannot be read.
Graph load_graph(const std::string& path);

// So many hosts that are all like the first one of `host`. Their networks are one.
Graph repeat_host(const Graph& host, int hosts);

}  // namespace tutti
