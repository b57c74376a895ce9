#include "topology/graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 9> kNodeKinds = {
    "host", "package",       "numa_node", "core",          "pci_switch",
    "gpu",  "nvlink_switch", "nic",       "network_switch"};
constexpr std::array<std::string_view, 7> kLinkClasses = {"nvlink", "xgmi",   "c2c",    "pci",
                                                          "system", "memory", "network"};

template <typename Kind, size_t n>
std::optional<Kind> parse(const std::array<std::string_view, n>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Kind>(found - names.begin());
}

}  // namespace

std::string_view name(NodeKind kind) { return kNodeKinds[static_cast<size_t>(kind)]; }
std::string_view name(LinkClass kind) { return kLinkClasses[static_cast<size_t>(kind)]; }
std::optional<NodeKind> parse_node_kind(std::string_view name) {
  return parse<NodeKind>(kNodeKinds, name);
}
std::optional<LinkClass> parse_link_class(std::string_view name) {
  return parse<LinkClass>(kLinkClasses, name);
}

int Graph::add(GraphNode node) {
  hosts_ = std::max(hosts_, node.host + 1);
  nodes_.push_back(std::move(node));
  out_.emplace_back();
  return static_cast<int>(nodes_.size()) - 1;
}

int Graph::connect(GraphLink link) {
  const int count = static_cast<int>(nodes_.size());
  if (link.from < 0 || link.from >= count || link.to < 0 || link.to >= count ||
      link.from == link.to) {
    throw Error(ErrorCode::invalid_argument,
                "a link must connect two different nodes of the graph, got " +
                    std::to_string(link.from) + " and " + std::to_string(link.to) + " of " +
                    std::to_string(count));
  }
  if (!(link.GBps > 0) || !std::isfinite(link.GBps) || !(link.latency_us >= 0) ||
      !std::isfinite(link.latency_us)) {
    throw Error(ErrorCode::invalid_argument,
                "the link between " + node(link.from).name + " and " + node(link.to).name +
                    " needs a bandwidth above 0 and a latency of at least 0");
  }
  const int index = static_cast<int>(links_.size());
  out_[static_cast<size_t>(link.from)].push_back(2 * index);
  out_[static_cast<size_t>(link.to)].push_back(2 * index + 1);
  links_.push_back(link);
  return index;
}

void Graph::rename(int node, int number, std::string name) {
  GraphNode& renamed = nodes_[static_cast<size_t>(node)];
  renamed.number = number;
  renamed.name = std::move(name);
}

std::vector<int> Graph::rank_nodes() const {
  for (const NodeKind kind : {NodeKind::gpu, NodeKind::core, NodeKind::host}) {
    std::vector<int> found;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].kind == kind) found.push_back(static_cast<int>(i));
    }
    if (found.empty()) continue;
    std::stable_sort(found.begin(), found.end(), [&](int a, int b) {
      return std::pair(node(a).host, node(a).number) < std::pair(node(b).host, node(b).number);
    });
    return found;
  }
  return {};
}

}  // namespace tutti
