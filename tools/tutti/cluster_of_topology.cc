// Converts a topology file or a network of `tutti simulate` into a cluster description.
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

// GPU models by the compute capability in NCCL's files.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kBySm = {
    {{"70", "V100"}, {"80", "A100"}, {"90", "H100"}, {"100", "B200"}}};

std::string gpu_in(const std::string& source) {
  if (!is_regular_file(source)) return "";
  const std::string text = file_text(source, FileKind::graph);
  // In RCCL's files `sm` is the number of compute units.
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

// GPUs and network cards of a topology's first host.
struct FirstHost {
  int gpus = 0;
  double fast_GBps = 0;  // NVLink or xGMI bandwidth of the first GPU
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
      // Cards that are slower than the fastest ones serve other purposes, and are ignored.
      if (link.GBps < host.card_GBps) continue;
      if (link.GBps > host.card_GBps) host.cards = 0;
      ++host.cards;
      host.card_GBps = link.GBps;
      if (node.kind == NodeKind::nic) host.network = kind_of_card(node.name);
    }
  }
  return host;
}

// Returns the cluster as text. `part`: bandwidth of a GPU's links in the topology, divided by their
// nominal bandwidth. GPUs without such links in the topology get the links of their data sheet,
// because topology files omit links that NCCL detects itself.
std::string cluster_line(const FirstHost& host, int hosts, const std::string& gpu, double part) {
  std::string line = cat(host.gpus, 'x', gpu, " x ", hosts);
  if (host.fast_GBps > 0) line += cat(", ", host.fast, ' ', host.fast_GBps / part);
  if (host.cards > 0) {
    line += cat(", ", host.network, ' ', host.cards, 'x', host.card_GBps);
  }
  return line;
}

// Loads a network. If the text is neither a cluster nor a network, throws the error for an invalid
// cluster.
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
        {.where = "--cluster", .remedy = "describe the cluster instead: 8xH100 x 16, IB 8x50"});
  }
  const std::string its = gpu.empty() ? gpu_in(text) : gpu;
  if (its.empty()) {
    throw Error(ErrorCode::invalid_argument, cat("the GPU model is missing in ", text),
                {.where = "--cluster", .remedy = "add --gpu H100"});
  }
  // NCCL's files give the bandwidth that NVLink reaches, which is this fraction of the nominal one.
  constexpr double kReachedOfNvlink = 0.8;
  std::string line = cluster_line(host, hosts, its, is_regular_file(text) ? kReachedOfNvlink : 1);
  // A file of one host applies to any number of hosts.
  if (ranks && hosts == 1) line.erase(line.find(" x "), 4);
  std::fprintf(stderr, "tutti: %s is treated as \"%s\"\n", text.c_str(), line.c_str());
  return load_cluster(line, ranks);
}

}  // namespace tutti::tool
