// A topology file, or a network that `tutti simulate` plays, as a line that says a cluster.
#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/text.h"
#include "tools/tutti/clusters.h"
#include "topology/networks/load_network.h"

namespace tutti::tool {

namespace {

// GPUs by compute capability, as NCCL's files tell it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kBySm = {
    {{"70", "V100"}, {"80", "A100"}, {"90", "H100"}, {"100", "B200"}}};

std::string gpu_in(const std::string& source) {
  if (!is_regular_file(source)) return "";
  const std::string text = file_text(source, FileKind::graph);
  // In files of RCCL's `sm` counts compute units.
  if (text.find(" gcn=\"") != text.npos) return text.find("\"gfx942") != text.npos ? "MI300X" : "";
  for (const auto& [sm, gpu] : kBySm) {
    if (text.find(cat(" sm=\"", sm, "\"")) != text.npos) return std::string(gpu);
  }
  return "";
}

bool begins_with(const std::string& name, std::initializer_list<const char*> words) {
  return std::ranges::any_of(words, [&](const char* word) { return name.starts_with(word); });
}

std::string_view kind_of_card(const std::string& name) {
  if (begins_with(name, {"rdmap", "efa"})) return "EFA";
  if (begins_with(name, {"cxi", "hsn"})) return "Slingshot";
  return begins_with(name, {"eth", "en", "bond"}) ? "Ethernet" : "IB";
}

// GPUs and cards of a topology's first host.
struct FirstHost {
  int gpus = 0;
  double fast_GBps = 0;  // of the first GPU: NVLink or xGMI
  std::string_view fast = "NVLink";
  int cards = 0;
  double card_GBps = 0;
  std::string_view network = "IB";
};

FirstHost first_host(const Graph& graph) {
  FirstHost host;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const GraphNode& node = graph.nodes()[i];
    if (node.host != 0) continue;
    const bool is_first_gpu = node.kind == NodeKind::gpu && host.gpus++ == 0;
    for (const Arc arc : graph.arcs_from(static_cast<int>(i))) {
      const GraphLink& link = graph.link_of(arc);
      if (is_first_gpu && (link.kind == LinkClass::nvlink || link.kind == LinkClass::xgmi)) {
        host.fast_GBps += link.GBps;
        if (link.kind == LinkClass::xgmi) host.fast = "xGMI";
      }
      const bool is_software = begins_with(node.name, {"lo", "veth", "br-", "virbr", "docker"});
      if (link.kind != LinkClass::network || is_software) continue;
      // Slower cards beside the fastest ones are for other things.
      if (link.GBps < host.card_GBps) continue;
      if (link.GBps > host.card_GBps) host.cards = 0;
      ++host.cards;
      host.card_GBps = link.GBps;
      if (node.kind == NodeKind::nic) host.network = kind_of_card(node.name);
    }
  }
  return host;
}

// `part`: of what is printed on the box the topology counts so much of a GPU's links. GPUs without
// such links in the topology have those of their data sheet: files leave them to NCCL.
std::string cluster_line(const FirstHost& host, int hosts, const std::string& gpu, double part) {
  std::string line = cat(host.gpus, 'x', gpu, " x ", hosts);
  if (host.fast_GBps > 0) line += cat(", ", host.fast, ' ', host.fast_GBps / part);
  if (host.cards > 0) {
    line += cat(", ", host.network, ' ', host.cards, 'x', host.card_GBps);
  }
  return line;
}

// A word that is neither a cluster nor a network is refused as a cluster.
std::unique_ptr<Network> network_of(const std::string& text) {
  try {
    return load_network(text, std::nullopt);
  } catch (const Error&) {
    if (!is_regular_file(text)) load_cluster(text);
    throw;
  }
}

}  // namespace

Cluster load_cluster_or_topology(const std::string& text, std::optional<int> ranks,
                                 const std::string& gpu) {
  if (is_cluster(text)) return load_cluster(text, ranks);
  const std::unique_ptr<Network> network = network_of(text);
  const int hosts = network->graph().hosts();
  const FirstHost host = first_host(network->graph());
  if (host.gpus == 0) {
    throw Error(
        ErrorCode::invalid_argument, cat(text, " has no GPUs"),
        {.where = "--cluster", .remedy = "write the cluster as a line: 8xH100 x 16, IB 8x50"});
  }
  const std::string its = gpu.empty() ? gpu_in(text) : gpu;
  if (its.empty()) {
    throw Error(ErrorCode::invalid_argument, cat("nothing tells which GPUs ", text, " has"),
                {.where = "--cluster", .remedy = "name them: --gpu H100"});
  }
  constexpr double kReachedOfNvlink = 0.8;  // what files of NCCL's count
  std::string line = cluster_line(host, hosts, its, is_regular_file(text) ? kReachedOfNvlink : 1);
  // A file of one host stands for as many as are asked for.
  if (ranks && hosts == 1) line.erase(line.find(" x "), 4);
  std::fprintf(stderr, "tutti: %s is taken as \"%s\"\n", text.c_str(), line.c_str());
  return load_cluster(line, ranks);
}

}  // namespace tutti::tool
