#include "topology/networks/network.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tutti {

namespace {

// Renumbers the arcs from index `begin` to the end of the list. The pattern that appended them
// counts its links from 0, but in the graph they begin at `first_link`.
void shift(std::vector<Arc>& arcs, size_t begin, int first_link) {
  for (size_t i = begin; i < arcs.size(); ++i) arcs[i] += 2 * first_link;
}

std::vector<int> links_between(const Graph& graph, int a, int b) {
  std::vector<int> links;
  for (const Arc arc : graph.arcs_from(a)) {
    if (graph.head(arc) == b) links.push_back(arc / 2);
  }
  return links;
}

std::optional<int> node_named(const Graph& graph, std::string_view name) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (graph.nodes()[i].name == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

// Throws if the network has too many links. Each pattern checks its own size, but the structure may
// repeat it many times.
void check_size(const Structure& structure) {
  int64_t links = structure.fabric ? structure.fabric->links() : 0;
  for (const auto& stage : structure.stages) {
    links += int64_t{structure.ranks()} / stage->ends() * stage->links();
  }
  if (links <= kMostLinks) return;
  throw Error(
      ErrorCode::invalid_argument,
      cat("the network would have ", links, " links, which exceeds the limit of ", kMostLinks),
      {.remedy = "use fewer ends or fewer parallel links"});
}

}  // namespace

int Structure::ranks() const {
  int inner = 1;
  for (const auto& stage : stages) inner *= stage->ends();
  return fabric ? fabric->ends() * ranks_per_end : inner;
}

Network::Network(Structure structure) : structure_(std::move(structure)) {
  check_size(structure_);
  add_ranks();
  int stride = 1;
  for (size_t stage = 0; stage < structure_.stages.size(); ++stage) {
    stages_.push_back({stride, static_cast<int>(graph_.links().size())});
    add_stage(stage);
    stride *= structure_.stages[stage]->ends();
  }
  first_fabric_link_ = static_cast<int>(graph_.links().size());
  if (structure_.fabric) add_fabric();
  build();
}

Network::Network(Graph graph) : graph_(std::move(graph)), nodes_(graph_.rank_nodes()) {
  if (nodes_.empty()) {
    throw Error(ErrorCode::invalid_argument, "the network has no nodes for ranks",
                {.cause = "the file defines no GPUs, cores or hosts"});
  }
  build();
}

void Network::build() {
  for (const GraphLink& link : graph_.links()) GBps_.push_back(link.GBps);
  failed_.assign(GBps_.size(), false);
  if (ends_forward()) graph_.let_ends_forward();
  routes_ = std::make_unique<EqualCostRoutes>(graph_, nodes_, failed_);
}

bool Network::ends_forward() const {
  if (!structure_.stages.empty() || structure_.fabric) {
    return std::ranges::any_of(structure_.stages,
                               [](const auto& stage) { return stage->ends_forward(); });
  }
  // True if every node of the graph is a rank's node.
  return graph_.nodes().size() == nodes_.size();
}

void Network::add_ranks() {
  const bool inside = structure_.stage_is_inside_host;
  const int each = inside ? structure_.stages[0]->ends() : 1;
  for (int rank = 0; rank < structure_.ranks(); ++rank) {
    nodes_.push_back(graph_.add({.kind = inside ? NodeKind::gpu : NodeKind::host,
                                 .host = rank / each,
                                 .number = rank % each,
                                 .name = cat(inside ? "gpu" : "host", rank)}));
  }
}

void Network::add_stage(size_t stage) {
  const Pattern& pattern = *structure_.stages[stage];
  const int stride = stages_[stage].stride;
  const int groups = ranks() / pattern.ends();
  for (int group = 0; group < groups; ++group) {
    const int first = group / stride * stride * pattern.ends() + group % stride;
    std::vector<int> ends;
    for (int end = 0; end < pattern.ends(); ++end) ends.push_back(node_of(first + end * stride));
    const std::string prefix = groups == 1 ? "" : cat("group", group, ".");
    pattern.build(graph_, ends, stage == 0 ? prefix : cat("level", stage, ".", prefix));
  }
}

void Network::add_fabric() {
  std::vector<int> ends = nodes_;
  const int each = structure_.ranks_per_end;
  if (each > 1) {
    ends.clear();
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank % each == 0) {
        const int end = rank / each;
        const int host = graph_.node(node_of(rank)).host;
        ends.push_back(graph_.add({NodeKind::nic, host, end, cat("nic", end)}));
      }
      const LinkSpeed& speed = structure_.to_end;
      graph_.connect({node_of(rank), ends.back(), LinkClass::pci, speed.GBps, speed.latency_us});
    }
    first_fabric_link_ += ranks();
  }
  structure_.fabric->build(graph_, ends, "");
}

std::vector<Place> Network::places(int ranks) const {
  std::vector<Place> places;
  const auto at = [&](int rank) -> const GraphNode& { return graph_.node(node_of(rank)); };
  std::vector<int> groups;  // group sizes, the innermost first
  int size = 1;
  for (const auto& stage : structure_.stages) {
    size *= stage->ends();
    if (size < this->ranks()) groups.push_back(size);
  }
  const size_t levels = groups.size();
  for (int rank = 0; rank < ranks; ++rank) {
    Place place;
    place.host = std::to_string(levels == 0 ? at(rank).host : rank / groups[levels - 1]);
    if (levels > 1) place.domain.numa_node = rank / groups[levels - 2];
    if (levels > 2) place.domain.cache = rank / groups[levels - 3];
    places.push_back(std::move(place));
  }
  return places;
}

int Network::alike_group_size() const {
  if (!structure_.stages.empty()) {
    const int inner = structure_.stages[0]->ends();
    return inner < ranks() && structure_.stages[0]->ends_are_alike() ? inner : 1;
  }
  const int hosts = graph_.hosts();
  if (hosts < 2 || ranks() % hosts != 0) return 1;
  // Ranks at different positions inside a machine may differ.
  const bool has_machines = std::ranges::any_of(graph_.nodes(), [](const GraphNode& node) {
    return node.kind == NodeKind::numa_node || node.kind == NodeKind::package ||
           node.kind == NodeKind::pci_switch;
  });
  // Ranks that are linked directly, without a switch between them, may differ too.
  const bool has_direct_links = std::ranges::any_of(graph_.links(), [&](const GraphLink& link) {
    const auto is_rank = [&](int node) {
      return graph_.node(node).kind == graph_.node(node_of(0)).kind;
    };
    return is_rank(link.from) && is_rank(link.to);
  });
  if (has_machines || has_direct_links) return 1;
  const int each = ranks() / hosts;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (graph_.node(node_of(rank)).host != rank / each) return 1;
  }
  return each;
}

std::string Network::name(Arc arc) const {
  return cat(graph_.node(graph_.tail(arc)).name, " -> ", graph_.node(graph_.head(arc)).name);
}

void Network::route_by_structure(int from, int to, int choice, std::vector<Arc>& arcs) const {
  const int inner =
      structure_.stages.empty() ? 1 : stages_.back().stride * structure_.stages.back()->ends();
  if (structure_.fabric && from / inner != to / inner) {
    const int each = structure_.ranks_per_end;
    const int to_ends = first_fabric_link_ - ranks();
    if (each > 1) arcs.push_back(2 * (to_ends + from));
    const size_t begin = arcs.size();
    structure_.fabric->route(from / each, to / each, choice, arcs);
    shift(arcs, begin, first_fabric_link_);
    if (each > 1) arcs.push_back(2 * (to_ends + to) + 1);
    return;
  }
  int at = from;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Pattern& pattern = *structure_.stages[i];
    const int stride = stages_[i].stride;
    const int here = at / stride % pattern.ends();
    const int there = to / stride % pattern.ends();
    if (here == there) continue;
    const int group = at / (stride * pattern.ends()) * stride + at % stride;
    const size_t begin = arcs.size();
    pattern.route(here, there, choice, arcs);
    shift(arcs, begin, stages_[i].first_link + group * pattern.links());
    at += (there - here) * stride;
  }
}

bool Network::intact(std::span<const Arc> arcs) const {
  return std::ranges::none_of(arcs, [&](Arc arc) { return failed_[static_cast<size_t>(arc / 2)]; });
}

int Network::route(int from, int to, std::vector<Arc>& arcs) {
  if (structure_.stages.empty() && !structure_.fabric) return routes_->find(from, to, arcs);
  const size_t begin = arcs.size();
  int choices = structure_.fabric ? structure_.fabric->choices() : 1;
  for (const auto& stage : structure_.stages) choices = std::max(choices, stage->choices());
  for (int choice = 0; choice < choices; ++choice) {
    route_by_structure(from, to, choice, arcs);
    if (!any_failed_ || intact(std::span(arcs).subspan(begin))) return 1;
    arcs.resize(begin);
  }
  return routes_->find(from, to, arcs);
}

double Network::slowest_us(std::span<const Arc> arcs, int ways) const {
  const size_t each = arcs.size() / static_cast<size_t>(ways);
  double slowest = 0;
  for (size_t first = 0; first < arcs.size(); first += each) {
    double us = 0;
    for (const Arc arc : arcs.subspan(first, each)) us += latency_us(arc);
    slowest = std::max(slowest, us);
  }
  return slowest;
}

void Network::fail(int link) {
  failed_[static_cast<size_t>(link)] = true;
  any_failed_ = true;
  routes_->forget();
}

std::vector<int> Network::links_named(const std::string& name) const {
  const auto count = static_cast<int>(graph_.links().size());
  if (name.starts_with("link")) {
    const auto link = parse_number<int>(std::string_view(name).substr(4));
    if (link && *link >= 0 && *link < count) return {*link};
  }
  if (const std::optional<int> node = node_named(graph_, name)) {
    std::vector<int> links;
    for (const Arc arc : graph_.arcs_from(*node)) links.push_back(arc / 2);
    return links;
  }
  for (size_t dash = name.find('-'); dash != name.npos; dash = name.find('-', dash + 1)) {
    const std::optional<int> a = node_named(graph_, std::string_view(name).substr(0, dash));
    const std::optional<int> b = node_named(graph_, std::string_view(name).substr(dash + 1));
    if (!a || !b) continue;
    std::vector<int> links = links_between(graph_, *a, *b);
    if (!links.empty()) return links;
  }
  if (count == 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("unknown link '", name, "': the network has no links"));
  }
  const GraphLink& first = graph_.links()[0];
  throw Error(ErrorCode::invalid_argument, cat("unknown link or node '", name, "'"),
              {.remedy = cat("name a link by its two nodes, such as ", graph_.node(first.from).name,
                             "-", graph_.node(first.to).name, ", or by number (link0 to link",
                             count - 1, "); a node's name selects all of its links")});
}

}  // namespace tutti
