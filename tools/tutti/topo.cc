// tutti topo: the machine as a graph; which rings and trees fit it, and why.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "topology/channels.h"
#include "topology/graph_json.h"
#include "topology/graph_report.h"
#include "topology/graph_sources.h"
#include "topology/route.h"

namespace tutti::tool {

namespace {

struct Options {
  std::string from;  // empty: this host
  int hosts = 1;
  int ranks = 0;  // 0: all places
  std::string json;
  std::string svg;
};

// Evenly over the places of ranks, as bind_local_ranks() spreads them.
std::vector<int> nodes_of_ranks(const Graph& graph, int wanted) {
  const std::vector<int> places = graph.rank_nodes();
  const auto there = static_cast<int>(places.size());
  if (wanted == 0) return places;
  if (wanted > there) {
    throw Error(ErrorCode::invalid_argument,
                cat("-n is ", wanted, ", but there are ", there, " places for ranks"),
                {.remedy = "ranks of one place share its links; take more hosts with --hosts"});
  }
  std::vector<int> nodes;
  for (int rank = 0; rank < wanted; ++rank) {
    nodes.push_back(places[static_cast<size_t>(int64_t{rank} * there / wanted)]);
  }
  return nodes;
}

Json orders_of(const Channels& channels) {
  Json orders = Json::array();
  for (const Channel& channel : channels.channels) {
    orders.push_back(channels.kind == ChannelKind::ring ? Json(channel.order)
                                                        : Json(channel.parents));
  }
  return orders;
}

Json cards_of(const Graph& graph, const Channels& channels) {
  Json cards = Json::array();
  for (const Channel& channel : channels.channels) {
    Json names = Json::array();
    for (const int card : channel.cards) names.push_back(graph.node(card).name);
    cards.push_back(std::move(names));
  }
  return cards;
}

Json relaxations_of(const ChannelSearch& search) {
  Json list = Json::array();
  for (const Relaxation& one : search.relaxations) {
    list.push_back({{"paths_up_to", tutti::name(one.allowed)},
                    {"channels", one.channels},
                    {"bandwidth_GBps", one.GBps}});
  }
  return list;
}

std::vector<double> bandwidths_of(const Channels& channels) {
  return std::vector<double>(channels.channels.size(), channels.GBps);
}

Json report(const Graph& graph, const std::vector<int>& ranks, const ChannelSearch& rings,
            const ChannelSearch& trees) {
  Json json = to_json(graph);
  json["ranks"] = ranks;
  json["rings"] = orders_of(rings.found);
  json["bandwidth_GBps"] = bandwidths_of(rings.found);
  json["ring_cards"] = cards_of(graph, rings.found);
  json["trees"] = orders_of(trees.found);
  json["tree_bandwidth_GBps"] = bandwidths_of(trees.found);
  json["tree_cards"] = cards_of(graph, trees.found);
  json["relaxations"] = {{"rings", relaxations_of(rings)}, {"trees", relaxations_of(trees)}};
  Json matrix = Json::array();
  for (const int from : ranks) {
    const std::vector<Route> routes = routes_from(graph, from);
    Json row = Json::array();
    for (const int to : ranks) row.push_back(name(routes[static_cast<size_t>(to)].type));
    matrix.push_back(std::move(row));
  }
  json["paths"] = std::move(matrix);
  return json;
}

int run(const Options& options) {
  Graph graph = load_graph(options.from);
  if (options.hosts > 1) graph = repeat_host(graph, options.hosts);
  const std::vector<int> ranks = nodes_of_ranks(graph, options.ranks);
  const ChannelSearch rings = find_channels(graph, ranks, ChannelKind::ring);
  const ChannelSearch trees = find_channels(graph, ranks, ChannelKind::tree);
  if (!options.json.empty()) {
    write_file(options.json, report(graph, ranks, rings, trees).dump(1) + "\n");
  }
  if (!options.svg.empty()) {
    write_file(options.svg, to_svg(graph, ranks, rings.found, trees.found,
                                   options.from.empty() ? "this host" : options.from));
  }
  std::printf("%s\n\n%s\n%s\n%s\n%s", summary(graph).c_str(), table_of_ranks(graph, ranks).c_str(),
              matrix_of_paths(graph, ranks).c_str(), describe(graph, ranks, rings).c_str(),
              describe(graph, ranks, trees).c_str());
  std::printf(
      "\nPaths: NVL NVLink or xGMI, PIX one PCI switch, PXB several, PHB through the processor,\n"
      "SYS between NUMA nodes, NET between hosts. GB/s are in each direction.\n");
  return 0;
}

}  // namespace

void add_topo(CommandLine& line) {
  const auto o = std::make_shared<Options>();
  Command command =
      line.add("topo", "the machine as a graph: its links, and the rings and trees that fit it");
  command
      .add_option("--from", o->from,
                  "NCCL's topology XML, hwloc's XML, a graph as JSON or text, or "
                  "synthetic:DESCRIPTION; default: this host")
      .type_name("FILE");
  command.add_option("--hosts", o->hosts, "so many such hosts, connected by their cards")
      .between(1, 4096)
      .show_default();
  command.add_option("-n,--ranks", o->ranks, "ranks; default: one on each GPU, or else core")
      .between(1, 1 << 20);
  command.add_option("--json", o->json, "write graph, rings and trees").type_name("FILE");
  command.add_option("--svg", o->svg, "write a picture").type_name("FILE");
  command.footer(
      "A file of JSON is an object with \"nodes\" and \"links\", as --json writes it. In a text "
      "file\n"
      "each line is one of them: node gpu0 gpu; link gpu0 gpu1 nvlink 4x20GB/s 0.5us.\n"
      "Example:\n"
      "  tutti topo --from nccl_topo.xml --hosts 2 --svg topo.svg");
  command.runs([o] { return run(*o); });
}

}  // namespace tutti::tool
