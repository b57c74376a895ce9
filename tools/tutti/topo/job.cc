#include "tools/tutti/topo/job.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/buffer.h"
#include "base/text.h"
#include "tools/tutti/topo/measure.h"
#include "topology/cluster_graph.h"
#include "topology/graph_json.h"
#include "topology/host.h"
#include "topology/hwloc_graph.h"

namespace tutti::tool {

namespace {

// Gathers each rank's text on all ranks.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& own) {
  const uint64_t length = own.size();
  std::vector<uint64_t> lengths(static_cast<size_t>(comm.size()));
  comm.all_gather({&length, 1, DType::u64}, {lengths.data(), lengths.size(), DType::u64});
  std::string all;
  for (const uint64_t each : lengths) all.resize(all.size() + each);
  comm.all_gatherv({own.data(), own.size(), DType::u8}, {all.data(), all.size(), DType::u8},
                   Blocks::of(lengths));
  std::vector<std::string> texts;
  size_t begin = 0;
  for (const uint64_t each : lengths) {
    texts.push_back(all.substr(begin, each));
    begin += each;
  }
  return texts;
}

// Returns the first core that this process may use, or -1 if it may use all.
int own_core() {
  const HostTopology& host = this_host();
  const auto allowed = [](const Core& core) { return !core.allowed_pus.empty(); };
  if (std::ranges::all_of(host.cores, allowed)) return -1;
  return static_cast<int>(std::ranges::find_if(host.cores, allowed) - host.cores.begin());
}

// Gathers the `own` numbers of all ranks on all ranks.
std::vector<int> gather_numbers(Communicator& comm, int own) {
  std::vector<int> all(static_cast<size_t>(comm.size()));
  comm.all_gather({&own, 1, DType::i32}, {all.data(), all.size(), DType::i32});
  return all;
}

// Returns the host's nodes that can be ranks, in the order of their numbers: its GPUs, otherwise
// its cores, otherwise the host itself.
std::vector<int> places_on(const Graph& graph, int host) {
  std::vector<int> found;
  for (const NodeKind kind : {NodeKind::gpu, NodeKind::core, NodeKind::host}) {
    for (int node = 0; node < static_cast<int>(graph.nodes().size()); ++node) {
      if (graph.node(node).host == host && graph.node(node).kind == kind) found.push_back(node);
    }
    if (!found.empty()) break;
  }
  std::ranges::stable_sort(found, {}, [&](int node) { return graph.node(node).number; });
  return found;
}

}  // namespace

JobGraph graph_of_job(Communicator& comm, const std::string& own_rack) {
  JobGraph job{.graph = {},
               .nodes = std::vector<int>(static_cast<size_t>(comm.size())),
               .hosts = names_of_hosts(comm),
               .racks = gather_texts(comm, own_rack)};
  std::map<std::string, std::vector<size_t>> ranks_on;
  std::vector<const std::string*> hosts;  // in the order of their first ranks
  for (size_t rank = 0; rank < job.hosts.size(); ++rank) {
    std::vector<size_t>& ranks = ranks_on[job.hosts[rank]];
    if (ranks.empty()) hosts.push_back(&job.hosts[rank]);
    ranks.push_back(rank);
  }
  const auto own = static_cast<size_t>(comm.rank());
  const bool is_first_on_host = ranks_on[job.hosts[own]].front() == own;
  const std::vector<std::string> graphs =
      gather_texts(comm, is_first_on_host ? to_json(graph_of_this_host(Cores::all)).dump() : "");

  std::vector<HostInCluster> found;
  for (const std::string* host : hosts) {
    const size_t first = ranks_on[*host].front();
    found.push_back({*host, job.racks[first], parse_graph_json(graphs[first], *host)});
  }
  job.graph = cluster_graph(found);
  const std::vector<int> cores = gather_numbers(comm, own_core());
  for (size_t host = 0; host < hosts.size(); ++host) {
    const std::vector<int> there = places_on(job.graph, static_cast<int>(host));
    const std::vector<size_t>& ranks = ranks_on[*hosts[host]];
    for (size_t k = 0; k < ranks.size(); ++k) {
      const auto on_its_core = std::ranges::find_if(there, [&](int node) {
        const GraphNode& place = job.graph.node(node);
        return place.kind == NodeKind::core && place.number == cores[ranks[k]];
      });
      job.nodes[ranks[k]] =
          on_its_core != there.end() ? *on_its_core : there[k * there.size() / ranks.size()];
    }
  }
  return job;
}

std::string table_of_places(const JobGraph& job) {
  size_t host = 4;
  size_t rack = 4;
  for (const std::string& name : job.hosts) host = std::max(host, name.size());
  for (const std::string& name : job.racks) rack = std::max(rack, name.size());
  const auto cell = [](const std::string& text, size_t width) {
    return text + std::string(width + 2 - text.size(), ' ');
  };
  std::string text = cat("rank  ", cell("host", host), cell("rack", rack), "node\n");
  for (size_t rank = 0; rank < job.nodes.size(); ++rank) {
    const std::string number = std::to_string(rank);
    text += std::string(4 - std::min<size_t>(4, number.size()), ' ');
    text += cat(number, "  ", cell(job.hosts[rank], host),
                cell(job.racks[rank].empty() ? "-" : job.racks[rank], rack),
                job.graph.node(job.nodes[rank]).name, "\n");
  }
  return text;
}

Json places_of(const JobGraph& job) {
  Json places = Json::array();
  for (size_t rank = 0; rank < job.nodes.size(); ++rank) {
    places.push_back(
        {{"host", job.hosts[rank]}, {"rack", job.racks[rank]}, {"node", job.nodes[rank]}});
  }
  return places;
}

}  // namespace tutti::tool
