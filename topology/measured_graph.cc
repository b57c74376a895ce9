#include "topology/measured_graph.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace tutti {
namespace {

// The best measurement so far.
struct Best {
  double GBps = 0;
  double latency_us = std::numeric_limits<double>::infinity();

  void take(const MeasuredPair& pair) {
    GBps = std::max(GBps, pair.GBps);
    latency_us = std::min(latency_us, pair.latency_us);
  }
  bool is_known() const { return GBps > 0; }
};

}  // namespace

Graph measured_graph(const std::vector<std::string>& host_of,
                     const std::vector<MeasuredPair>& pairs) {
  std::vector<std::string> hosts;
  std::vector<size_t> index;  // by rank: index of its host
  for (const std::string& host : host_of) {
    index.push_back(static_cast<size_t>(std::ranges::find(hosts, host) - hosts.begin()));
    if (index.back() == hosts.size()) hosts.push_back(host);
  }
  std::vector<Best> inside(host_of.size());  // best to others on its host, by rank
  std::vector<Best> within(hosts.size());    // best among the host's ranks, by host
  std::vector<Best> outside(hosts.size());   // best to other hosts, by host
  double widest = 0;
  for (const MeasuredPair& pair : pairs) {
    const auto from = static_cast<size_t>(pair.from);
    const auto to = static_cast<size_t>(pair.to);
    widest = std::max(widest, pair.GBps);
    if (index[from] == index[to]) {
      inside[from].take(pair);
      inside[to].take(pair);
      within[index[from]].take(pair);
    } else {
      outside[index[from]].take(pair);
      outside[index[to]].take(pair);
    }
  }

  Graph graph;
  std::vector<int> centres;
  for (size_t host = 0; host < hosts.size(); ++host) {
    centres.push_back(graph.add({.kind = NodeKind::numa_node,
                                 .host = static_cast<int>(host),
                                 .number = 0,
                                 .name = hosts[host]}));
  }
  for (size_t rank = 0; rank < host_of.size(); ++rank) {
    const Best& best = inside[rank];
    const int node = graph.add({.kind = NodeKind::core,
                                .host = static_cast<int>(index[rank]),
                                .number = static_cast<int>(rank),
                                .name = cat("rank", rank)});
    // A rank that is alone on its host is limited by the card only.
    graph.connect({node, centres[index[rank]], LinkClass::memory,
                   best.is_known() ? best.GBps : std::max(2 * widest, 1.0),
                   best.is_known() ? best.latency_us / 2 : 0});
  }
  if (hosts.size() < 2) return graph;
  const int network =
      graph.add({.kind = NodeKind::network_switch, .host = -1, .number = 0, .name = "network"});
  for (size_t host = 0; host < hosts.size(); ++host) {
    const Best& best = outside[host];
    if (!best.is_known()) continue;
    const int card = graph.add({.kind = NodeKind::nic,
                                .host = static_cast<int>(host),
                                .number = 0,
                                .name = cat(hosts[host], " card")});
    graph.connect({card, centres[host], LinkClass::pci, std::max(2 * widest, 1.0), 0});
    // The latency between two hosts is assumed to contain the latency within a host.
    const double own = within[host].is_known() ? within[host].latency_us : 0;
    graph.connect(
        {card, network, LinkClass::network, best.GBps, std::max(0.0, best.latency_us - own) / 2});
  }
  return graph;
}

}  // namespace tutti
