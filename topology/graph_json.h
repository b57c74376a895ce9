// Graphs as JSON, which `tutti topo --json` writes and `--from` reads:
//
//   {"nodes": [{"kind": "gpu", "host": 0, "number": 0, "name": "gpu0"}, ...],
//    "links": [{"from": 0, "to": 4, "class": "pci", "bandwidth_GBps": 24, "latency_us": 0.3}, ...]}
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "topology/graph.h"

namespace tutti {

// Returns an object with "nodes" and "links".
Json to_json(const Graph& graph);
// Parses a graph; members that to_json() does not write are ignored. `file`: its name in messages.
// Throws Error(invalid_argument) that names the position.
Graph parse_graph_json(std::string_view json, const std::string& file);

}  // namespace tutti
