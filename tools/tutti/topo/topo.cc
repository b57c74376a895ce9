// tutti topo: shows the topology graph and the best rings and trees on it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "bench/pair_costs.h"
#include "collectives/communicator.h"
#include "collectives/cost/cost_model.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/exclude.h"
#include "tools/tutti/host_options.h"
#include "tools/tutti/topo/job.h"
#include "tools/tutti/topo/measure.h"
#include "topology/channels.h"
#include "topology/graph_json.h"
#include "topology/graph_report.h"
#include "topology/graph_sources.h"
#include "topology/hwloc_graph.h"
#include "topology/networks/load_network.h"
#include "topology/route.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/paths/fabrics.h"

namespace tutti::tool {

namespace {

constexpr size_t kMostInMatrix = 256;  // maximum number of ranks for which the matrix is written

struct TopoOptions {
  std::string from;  // empty: this host
  int repeat = 1;
  int ranks = 0;  // number of ranks; 0: one for each place in the graph (GPU or core)
  std::string json;
  std::string svg;
  bool measure = false;
  bool tune = false;
  bool is_measuring_rank = false;
  HostOptions places;
};

// Distributes ranks evenly over the places, as bind_local_ranks() does.
std::vector<int> nodes_of_ranks(const Graph& graph, int wanted) {
  const std::vector<int> places = graph.rank_nodes();
  const auto there = static_cast<int>(places.size());
  if (wanted == 0) return places;
  if (wanted > there) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("-n is ", wanted, ", but the topology has ", there, " places for ranks"),
        {.remedy = "add hosts with --repeat; several ranks at one place would share its links"});
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
  Json json = tutti::to_json(graph);
  json["ranks"] = ranks;
  json["rings"] = orders_of(rings.found);
  json["bandwidth_GBps"] = bandwidths_of(rings.found);
  json["ring_cards"] = cards_of(graph, rings.found);
  json["trees"] = orders_of(trees.found);
  json["tree_bandwidth_GBps"] = bandwidths_of(trees.found);
  json["tree_cards"] = cards_of(graph, trees.found);
  json["relaxations"] = {{"rings", relaxations_of(rings)}, {"trees", relaxations_of(trees)}};
  if (ranks.size() > kMostInMatrix) return json;
  Json matrix = Json::array();
  for (const int from : ranks) {
    Json row = Json::array();
    for (const Route& way : routes_from(graph, from, ranks)) row.push_back(name(way.type));
    matrix.push_back(std::move(row));
  }
  json["paths"] = std::move(matrix);
  return json;
}

// Stores the costs that follow from the measured pairs in the file of `tutti tune`.
void tune(const MeasuredRanks& measured) {
  const std::string file = cost_model_file();
  if (file.empty()) {
    throw Error(ErrorCode::invalid_argument, "there is no file for the costs",
                {.remedy = "set TUTTI_TUNE_FILE"});
  }
  CostModel model = std::filesystem::exists(file) ? load_cost_model() : CostModel::defaults();
  const PathClass between =
      parse_path_class(parse_transports(measured.transport).fabric).value_or(PathClass::tcp);
  bench::learn_from_pairs(measured.host_of, measured.pairs, measured.together, between, model);
  std::error_code failed;  // write_file() reports the failure
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), failed);
  write_file(file, to_json(model) + "\n");
  std::printf(
      "\n"
      "latencies and card bandwidths are stored in %s\n",
      file.c_str());
}

int measure(const TopoOptions& options) {
  if (!options.from.empty() || !options.svg.empty() || options.repeat > 1) {
    throw UsageError("--measure writes the graph to --json FILE; show it with --from FILE");
  }
  const std::vector<Host> hosts = find_hosts(options.places);
  const int ranks = std::max(2, ranks_of_job(options.ranks, hosts));
  const MeasuredRanks measured = measure_ranks(ranks, hosts);
  const Graph graph = measured_graph(measured.host_of, measured.pairs);
  if (!options.json.empty()) {
    Json json = tutti::to_json(graph);
    json["transport"] = measured.transport;
    json["measured"] = to_json(measured.pairs);
    json["measured_together"] = to_json(measured.together);
    write_file(options.json, json.dump(1) + "\n");
  }
  std::printf("%d ranks over %s\n\n%s", ranks, measured.transport.c_str(),
              to_text(measured).c_str());
  if (options.tune) tune(measured);
  return 0;
}

// Prints or writes the graph. `table`: text about the ranks; `places`: additional JSON about them.
void show(const TopoOptions& options, const Graph& graph, const std::vector<int>& ranks,
          const std::string& table, const Json& places = {}) {
  const ChannelSearch rings = find_channels(graph, ranks, ChannelKind::ring);
  const ChannelSearch trees = find_channels(graph, ranks, ChannelKind::tree);
  if (!options.json.empty()) {
    Json json = report(graph, ranks, rings, trees);
    if (!places.is_null()) json["places"] = places;
    write_file(options.json, json.dump(1) + "\n");
  }
  if (!options.svg.empty()) {
    write_file(options.svg, to_svg(graph, ranks, rings.found, trees.found,
                                   options.from.empty() ? "this host" : options.from));
  }
  std::printf("%s\n\n%s\n%s\n%s\n%s", summary(graph).c_str(), table.c_str(),
              matrix_of_paths(graph, ranks).c_str(), describe(graph, ranks, rings).c_str(),
              describe(graph, ranks, trees).c_str());
  std::printf(
      "\nPaths: NVL NVLink or xGMI, PIX one PCI switch, PXB several, PXN by NVLink to a GPU that "
      "is\n"
      "so near, PHB through the processor, SYS between NUMA nodes, NET between hosts. GB/s are in\n"
      "each direction.\n%s",
      unknown_speeds(graph).c_str());
}

// Shows the graph of a job. All ranks compute the same result, and rank 0 prints it. If several
// ranks share a node, rings and trees connect nodes.
int show_job(const TopoOptions& options, const Job& job) {
  Communicator comm = Communicator::init(job);
  const JobGraph found = graph_of_job(comm, job.rack);
  if (comm.rank() != 0) return 0;
  std::vector<int> nodes;
  for (const int node : found.nodes) {
    if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  std::string table = table_of_places(found);
  if (nodes.size() < found.nodes.size()) {
    table += "Several ranks share a node: rings and trees connect nodes.\n";
  }
  show(options, found.graph, nodes, table, places_of(found));
  return 0;
}

int run(const TopoOptions& options) {
  if (options.is_measuring_rank) return run_measuring_rank();
  if (options.measure) return measure(options);
  if (options.tune) throw UsageError("--tune requires --measure");
  if (!options.places.hosts.empty() || !options.places.host_file.empty()) {
    throw UsageError("--hosts and --hostfile require --measure");
  }
  if (options.from.empty() && options.repeat == 1 && options.ranks == 0) {
    const Job job = job_from_environment();
    if (job.size > 1) return show_job(options, job);
  }
  Graph graph = options.from.empty() ? graph_of_this_host(Cores::allowed)
                                     : load_network(options.from, std::nullopt)->graph();
  if (options.repeat > 1) {
    if (graph.hosts() > 1) {
      throw UsageError(cat("--repeat requires a single host, but there are ", graph.hosts(), " in ",
                           options.from));
    }
    graph = repeat_host(graph, options.repeat);
  }
  const std::vector<int> ranks = nodes_of_ranks(graph, options.ranks);
  show(options, graph, ranks, table_of_ranks(graph, ranks));
  return 0;
}

}  // namespace

void add_topo(CommandLine& line) {
  const auto o = std::make_shared<TopoOptions>();
  Command command = line.add(
      "topo",
      "show the topology of this machine: its links, and the rings and trees that use them best");
  command
      .add_option(
          "--from", o->from,
          "topology to read: NCCL topology XML, hwloc XML, a graph as JSON or text, a network of "
          "`tutti simulate`, or an hwloc synthetic description (default: this host)")
      .type_name("FILE|DESCRIPTION");
  command
      .add_option("--repeat", o->repeat, "number of such hosts, connected by their network cards")
      .between(1, 4096)
      .show_default();
  command
      .add_option("-n,--ranks", o->ranks,
                  "number of ranks (default: one per GPU; without GPUs one per core)")
      .between(1, 1 << 20);
  command.add_option("--json", o->json, "write the graph, rings and trees as JSON")
      .type_name("FILE");
  command.add_option("--svg", o->svg, "write a picture to this file").type_name("FILE");
  command.add_flag("--measure", o->measure,
                   "measure latency and bandwidth between ranks, on this host or on --hosts; "
                   "--json then writes the measured graph");
  command.add_flag("--tune", o->tune,
                   "with --measure: also save the latencies and network bandwidths to the cost "
                   "file that `tutti tune` writes (faster than `tutti tune`, but less complete)");
  add_host_options(command, o->places);
  command.add_flag("--measure-rank", o->is_measuring_rank, "run as a rank of --measure").group("");
  command.footer(
      "A JSON file is an object with \"nodes\" and \"links\", as written by --json. A text file "
      "has one\n"
      "of them per line: node gpu0 gpu; link gpu0 gpu1 nvlink 4x20GB/s 0.5us.\n"
      "Example:\n"
      "  tutti topo --from nccl_topo.xml --repeat 2 --svg topo.svg\n"
      "  tutti run --hosts a,b -n 8 -- tutti topo        # show the hosts and ranks of a job\n"
      "  tutti topo --measure --hosts a,b");
  command.runs([o] { return run(*o); });
}

}  // namespace tutti::tool
