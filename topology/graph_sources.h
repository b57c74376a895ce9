// Readers of graph files.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// Returns true if `text` begins as a file of a format that parse_graph() reads.
bool is_graph_file(std::string_view text);

// Parses a file's text; its format is detected from the content: NCCL's topology XML, hwloc's XML,
// JSON from `tutti topo --json`, or lines of nodes and links (graph_text.h). `file`: its name in
// messages. Throws Error(invalid_argument) that names file and line.
Graph parse_graph(const std::string& text, const std::string& file);

// Reads a graph file. Throws as parse_graph() does, and Error(system) if the file cannot be read.
Graph load_graph(const std::string& path);

// Returns a graph of `hosts` copies of the first host of `host`. They share its nodes outside
// hosts, such as the network.
Graph repeat_host(const Graph& host, int hosts);

}  // namespace tutti
