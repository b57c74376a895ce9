#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/svg.h"
#include "base/text.h"
#include "topology/graph_report.h"

namespace tutti {
namespace {

constexpr int kMostHosts = 4;
constexpr size_t kMostLanes = 16;  // maximum number of channels per kind
constexpr size_t kMostCores = 32;  // with more cores, only those that are ranks are drawn
constexpr int kDeepest = 64;       // maximum nesting
constexpr double kColumn = 78;
constexpr double kRow = 62;
constexpr double kMargin = 24;
constexpr double kTop =
    118;  // y of the first row; titles and the arcs between NUMA nodes are above it
constexpr double kBoxWidth = 70;
constexpr double kBoxHeight = 26;
constexpr double kLane = 30;
constexpr double kBetweenHosts = 30;

struct Spot {
  double x = 0;
  double y = 0;
  int row = 0;
};

std::string colour_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::host:
    case NodeKind::package:
    case NodeKind::numa_node:
      return "#dbe6f4";
    case NodeKind::core:
      return "#eef3f9";
    case NodeKind::pci_switch:
    case NodeKind::network_switch:
      return "#e8e8e8";
    case NodeKind::gpu:
      return "#d8efd8";
    case NodeKind::nvlink_switch:
      return "#c4e3c4";
    case NodeKind::nic:
      return "#f8e6cc";
  }
  return "#ffffff";
}

struct Stroke {
  const char* colour;
  double width;
};

Stroke stroke_of(LinkClass kind) {
  switch (kind) {
    case LinkClass::nvlink:
    case LinkClass::xgmi:
    case LinkClass::c2c:
      return {"#4a9a4a", 2};
    case LinkClass::pci:
      return {"#666666", 1.5};
    case LinkClass::system:
      return {"#3d6fb0", 3};
    case LinkClass::memory:
      return {"#9ab4d6", 1};
    case LinkClass::network:
      return {"#c98222", 1.5};
  }
  return {"#000000", 1};
}

class Picture {
 public:
  Picture(const Graph& graph, std::span<const int> ranks) : graph_(graph), ranks_(ranks) {
    hide_cores_ =
        !ranks.empty() && (graph.node(ranks.front()).kind != NodeKind::core ||
                           std::ranges::count(graph.nodes(), NodeKind::core, &GraphNode::kind) >
                               static_cast<ptrdiff_t>(kMostCores));
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      rank_of_[ranks[rank]] = static_cast<int>(rank);
    }
    place_hosts();
    place_switches();
  }

  std::string draw(const Channels& rings, const Channels& trees, const std::string& title) {
    svg::text(body_, kMargin, 22, 15, "start", "#222222", title, true);
    svg::text(body_, kMargin, 40, 11, "start", "#555555", summary(graph_));
    for (const GraphLink& link : graph_.links()) draw_link(link);
    for (const auto& [node, spot] : spots_) draw_node(node, spot);
    for (size_t host = 0; hosts_.size() > 1 && host < hosts_.size(); ++host) {
      svg::text(body_, hosts_[host].first, kTop - kRow + 4, 11, "start", "#222222",
                cat("host ", host), true);
    }
    double y = bottom_ + kRow;
    y = draw_lanes(rings, y);
    y = draw_lanes(trees, y);
    y = draw_legend(y);
    return svg::document(title, std::max(right_ + kMargin, 520.0), y + kMargin, body_.str());
  }

 private:
  bool is_shown(int node) const {
    const GraphNode& it = graph_.node(node);
    if (it.host >= kMostHosts) return false;
    return it.kind != NodeKind::core || (!hide_cores_ || rank_of_.contains(node));
  }

  // ---- positions: each host is a forest, whose roots are packages, NUMA nodes or the host

  // Places the hosts, following PCI and memory links downwards from the roots.
  void place_hosts() {
    double x = kMargin;
    for (int host = 0; host < std::min(graph_.hosts(), kMostHosts); ++host) {
      const double start = x;
      for (const NodeKind root : {NodeKind::package, NodeKind::numa_node, NodeKind::host}) {
        for (size_t node = 0; node < graph_.nodes().size(); ++node) {
          const GraphNode& it = graph_.nodes()[node];
          if (it.host != host || it.kind != root || spots_.contains(static_cast<int>(node))) {
            continue;
          }
          place(static_cast<int>(node), 0, x);
        }
      }
      for (size_t node = 0; node < graph_.nodes().size(); ++node) {
        const GraphNode& it = graph_.nodes()[node];
        if (it.host == host && it.kind != NodeKind::nvlink_switch &&
            is_shown(static_cast<int>(node)) && !spots_.contains(static_cast<int>(node))) {
          place(static_cast<int>(node), 1, x);
        }
      }
      right_ = std::max(right_, x);
      hosts_.push_back({start, x});
      x += kBetweenHosts;
    }
    int deepest = 1;
    for (const auto& [node, spot] : spots_) deepest = std::max(deepest, spot.row);
    for (auto& [node, spot] : spots_) {
      const NodeKind kind = graph_.node(node).kind;
      const bool is_leaf = kind == NodeKind::gpu || kind == NodeKind::nic || kind == NodeKind::core;
      spot.y = kTop + kRow * (is_leaf ? deepest : spot.row);
    }
    bottom_ = kTop + kRow * deepest;
  }

  // Centres a node above its children, and advances x past them.
  void place(int node, int row, double& x) {
    spots_[node] = {.row = row};
    const double start = x;
    for (const Arc arc : graph_.arcs_from(node)) {
      const LinkClass kind = graph_.link_of(arc).kind;
      const int child = graph_.head(arc);
      const NodeKind child_kind = graph_.node(child).kind;
      const bool is_root = child_kind == NodeKind::numa_node || child_kind == NodeKind::package;
      const bool hangs = is_root ? kind == LinkClass::system &&
                                       graph_.node(node).kind == NodeKind::package &&
                                       child_kind == NodeKind::numa_node
                                 : kind == LinkClass::pci || kind == LinkClass::memory;
      if (hangs && row < kDeepest && is_shown(child) && !spots_.contains(child))
        place(child, row + 1, x);
    }
    if (x == start) x += kColumn;
    spots_[node].x = (start + x - (kColumn - kBoxWidth)) / 2;
  }

  void place_switches() {
    int placed = 0;
    bool any_nvlink = false;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const GraphNode& it = graph_.nodes()[i];
      if (it.kind != NodeKind::nvlink_switch || it.host >= kMostHosts || it.host < 0) continue;
      const auto [start, end] = hosts_[static_cast<size_t>(it.host)];
      spots_[static_cast<int>(i)] = {(start + end) / 2, bottom_ + kRow, 0};
      any_nvlink = true;
    }
    // Links between GPUs are drawn as arcs below the GPUs.
    const bool any_arcs = std::ranges::any_of(graph_.links(), [](const GraphLink& link) {
      return link.kind == LinkClass::nvlink || link.kind == LinkClass::xgmi;
    });
    if (any_nvlink || any_arcs) bottom_ += kRow;
    bool any_network = false;
    double x = kMargin + kBoxWidth;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (graph_.nodes()[i].kind != NodeKind::network_switch || placed++ > 12) continue;
      spots_[static_cast<int>(i)] = {std::max(x, placed == 1 ? right_ / 2 : x), bottom_ + kRow, 0};
      x = spots_[static_cast<int>(i)].x + 2 * kColumn;
      any_network = true;
    }
    if (any_network) bottom_ += kRow;
  }

  // ---- the machine

  void draw_link(const GraphLink& link) {
    const auto from = spots_.find(link.from);
    const auto to = spots_.find(link.to);
    if (from == spots_.end() || to == spots_.end()) return;
    const Stroke stroke = stroke_of(link.kind);
    const Spot& a = from->second;
    const Spot& b = to->second;
    if (a.y != b.y) {
      svg::line(body_, a.x, a.y, b.x, b.y, stroke.colour, stroke.width);
      return;
    }
    // Links within one row are arcs, below GPUs and above NUMA nodes.
    const bool above = link.kind == LinkClass::system;
    const double deepest = above ? kRow / 2 : kRow * 0.9;
    const double depth = (above ? -1 : 1) * std::min(deepest, 14 + std::abs(a.x - b.x) / 10);
    arc(a.x, b.x, a.y + (above ? -kBoxHeight / 2 : kBoxHeight / 2), depth, stroke.colour,
        stroke.width);
  }

  void arc(double x1, double x2, double y, double depth, std::string_view colour, double width,
           bool arrow = false) {
    body_ << "<path d=\"M " << svg::fixed(x1) << ' ' << svg::fixed(y) << " Q "
          << svg::fixed((x1 + x2) / 2) << ' ' << svg::fixed(y + 2 * depth) << ' ' << svg::fixed(x2)
          << ' ' << svg::fixed(y) << "\" fill=\"none\" stroke=\"" << colour << "\" stroke-width=\""
          << svg::fixed(width) << "\"/>\n";
    if (!arrow) return;
    const double back = x2 > x1 ? -5 : 5;
    const double rise = depth > 0 ? 6 : -6;
    svg::line(body_, x2, y, x2 + back, y + rise, colour, width);
    svg::line(body_, x2, y, x2 + back / 5, y + rise * 1.2, colour, width);
  }

  void draw_node(int node, const Spot& spot) {
    const GraphNode& it = graph_.node(node);
    body_ << "<rect x=\"" << svg::fixed(spot.x - kBoxWidth / 2) << "\" y=\""
          << svg::fixed(spot.y - kBoxHeight / 2) << "\" width=\"" << svg::fixed(kBoxWidth)
          << "\" height=\"" << svg::fixed(kBoxHeight) << "\" rx=\"4\" fill=\"" << colour_of(it.kind)
          << "\" stroke=\"#555555\"><title>" << svg::escaped(it.name) << "</title></rect>\n";
    std::string label = it.name.substr(0, it.name.find(' '));
    label.erase(0, label.rfind('.') + 1);  // the host's name is written above
    if (label.size() > 11) label = label.substr(label.size() - 11);
    const auto rank = rank_of_.find(node);
    svg::text(body_, spot.x, spot.y + (rank == rank_of_.end() ? 4 : -1), 10, "middle", "#222222",
              label);
    if (rank == rank_of_.end()) return;
    svg::text(body_, spot.x, spot.y + 10, 10, "middle", "#222222", cat("rank ", rank->second),
              true);
  }

  // ---- channels: a lane for each, with an arrow for each message

  double draw_lanes(const Channels& channels, double y) {
    if (ranks_.size() < 2 || channels.channels.empty()) return y;
    svg::text(body_, kMargin, y, 12, "start", "#222222",
              cat(channels.channels.size(), ' ', name(channels.kind),
                  channels.channels.size() == 1 ? "" : "s", " of ", channels.GBps, " GB/s"),
              true);
    y += 12;
    for (size_t i = 0; i < std::min(channels.channels.size(), kMostLanes); ++i) {
      y += kLane;
      const std::string colour =
          svg::hsl(static_cast<double>(i) /
                       static_cast<double>(std::min(channels.channels.size(), kMostLanes)),
                   0.65, 0.42);
      draw_lane(channels.channels[i], channels.kind, y, colour);
    }
    if (channels.channels.size() > kMostLanes) {
      y += 16;
      svg::text(body_, kMargin, y, 10, "start", "#555555",
                cat("and ", channels.channels.size() - kMostLanes, " more"));
    }
    return y + kLane;
  }

  void draw_lane(const Channel& channel, ChannelKind kind, double y, const std::string& colour) {
    svg::line(body_, kMargin, y, right_, y, "#dddddd", 1);
    for (size_t i = 0; i < channel.order.size(); ++i) {
      const int to = channel.order[i];
      const int from = kind == ChannelKind::tree
                           ? channel.parents[static_cast<size_t>(to)]
                           : channel.order[(i + channel.order.size() - 1) % channel.order.size()];
      const auto end = spots_.find(ranks_[static_cast<size_t>(to)]);
      if (end == spots_.end()) continue;
      body_ << "<circle cx=\"" << svg::fixed(end->second.x) << "\" cy=\"" << svg::fixed(y)
            << "\" r=\"" << (from < 0 ? 4 : 2.5) << "\" fill=\"" << colour << "\"/>\n";
      if (from < 0) continue;
      const auto start = spots_.find(ranks_[static_cast<size_t>(from)]);
      if (start == spots_.end()) continue;
      const double x1 = start->second.x;
      const double x2 = end->second.x;
      arc(x1, x2, y, x2 > x1 ? -8 : 6, colour, 1.4, true);
    }
  }

  double draw_legend(double y) {
    std::map<LinkClass, double> classes;  // by class: widest known bandwidth
    for (const GraphLink& link : graph_.links()) {
      double& widest = classes[link.kind];
      if (!link.assumed) widest = std::max(widest, link.GBps);
    }
    double x = kMargin;
    for (const auto& [kind, widest] : classes) {
      const Stroke stroke = stroke_of(kind);
      svg::line(body_, x, y - 4, x + 22, y - 4, stroke.colour, stroke.width);
      svg::text(body_, x + 27, y, 10, "start", "#222222",
                widest > 0 ? cat(name(kind), ", to ", svg::fixed(widest), " GB/s")
                           : cat(name(kind), ", of unknown speed"));
      x += 160;
    }
    return y + 8;
  }

  const Graph& graph_;
  std::span<const int> ranks_;
  bool hide_cores_ = false;
  std::map<int, int> rank_of_;                    // by node
  std::map<int, Spot> spots_;                     // by node
  std::vector<std::pair<double, double>> hosts_;  // by host: horizontal extent
  double right_ = 0;
  double bottom_ = 0;
  std::ostringstream body_;
};

}  // namespace

std::string to_svg(const Graph& graph, std::span<const int> ranks, const Channels& rings,
                   const Channels& trees, const std::string& title) {
  return Picture(graph, ranks).draw(rings, trees, title);
}

}  // namespace tutti
