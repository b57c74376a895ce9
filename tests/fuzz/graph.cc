// Fuzzes machine graphs: NCCL's XML, hwloc's XML, JSON and text. An accepted graph is searched as
// `tutti topo` does.
#include <algorithm>

#include "tests/fuzz/target.h"
#include "topology/channels.h"
#include "topology/graph_json.h"
#include "topology/graph_report.h"
#include "topology/graph_sources.h"

namespace tutti {

namespace {

// With many ranks the search for channels may legitimately take seconds.
constexpr size_t kMostRanks = 6;

void walk(const Graph& graph) {
  std::vector<int> ranks = graph.rank_nodes();
  ranks.resize(std::min(ranks.size(), kMostRanks));
  summary(graph);
  table_of_ranks(graph, ranks);
  matrix_of_paths(graph, ranks);
  parse_graph_json(to_json(graph).dump(), "the graph as it was written");
  const ChannelSearch rings = find_channels(graph, ranks, ChannelKind::ring);
  const ChannelSearch trees = find_channels(graph, ranks, ChannelKind::tree);
  describe(graph, ranks, rings);
  to_svg(graph, ranks, rings.found, trees.found, "a graph");
}

}  // namespace

}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string text(fuzz::text_of(data, size));
  std::optional<Graph> graph;
  fuzz::take("the.file", [&] { graph = parse_graph(text, "the.file"); });
  // The error for disconnected ranks names them.
  if (graph) fuzz::take("", [&] { walk(*graph); });
  return 0;
}
