#include "topology/channels.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/text.h"
#include "topology/channel_packing.h"

namespace tutti {
namespace {

constexpr int kMostParts = 16;  // into which a link's bandwidth is divided
// A farther path, or more channels, have to be worth it.
constexpr double kBetter = 1.001;
// Inside of one GPU (NCCL's LOC_BW): what a channel of a single rank has.
constexpr double kLocalGBps = 5000;

// What a host is, whatever its number and wherever its nodes are in the graph.
std::string likeness(const Graph& graph, int host) {
  std::map<int, size_t> index;
  std::string text;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const GraphNode& node = graph.nodes()[i];
    if (node.host != host && node.host >= 0) continue;
    index.emplace(static_cast<int>(i), index.size());
    text += cat(name(node.kind), node.number, ' ');
  }
  for (const GraphLink& link : graph.links()) {
    const auto from = index.find(link.from);
    const auto to = index.find(link.to);
    if (from == index.end() || to == index.end()) continue;
    text += cat(from->second, '-', to->second, name(link.kind), link.GBps, ' ');
  }
  return text;
}

// A binary tree of which every host with an odd number is a leaf; -1: the root, which is 0.
//
//   0------------4
//              /   \
//             2     6
//            / \   /
//           1   3 5
int parent_of(int host, int hosts) {
  if (host == 0) return -1;
  const int bit = host & -host;
  const int above = (host ^ bit) | (bit << 1);
  return above < hosts ? above : host ^ bit;
}

// The second one has those as its leaves that are inside of the first: turned around, or shifted by
// one where that would leave leaves where they are.
std::vector<int> tree_of_hosts(int hosts, bool second) {
  std::vector<int> parents;
  for (int host = 0; host < hosts; ++host) {
    const auto image = [&](int number) {
      if (!second || number < 0) return number;
      return hosts % 2 == 0 ? hosts - 1 - number : (number + 1) % hosts;
    };
    const int original = !second          ? host
                         : hosts % 2 == 0 ? hosts - 1 - host
                                          : (host + hosts - 1) % hosts;
    parents.push_back(image(parent_of(original, hosts)));
  }
  return parents;
}

class Search {
 public:
  Search(const Graph& graph, std::span<const int> ranks, ChannelKind kind)
      : graph_(graph), ranks_(ranks), kind_(kind) {
    for (Arc arc = 0; arc < graph.arcs(); ++arc) capacity_.push_back(graph.link_of(arc).GBps);
    divide();
  }

  ChannelSearch run() {
    result_.found.kind = kind_;
    if (ranks_.empty()) return result_;
    if (ranks_.size() == 1) {
      result_.found.GBps = kLocalGBps;
      result_.found.channels = {{.order = {0}}};
      if (kind_ == ChannelKind::tree) result_.found.channels[0].parents = {-1};
      return result_;
    }
    std::set<PathType> types;
    for_each_route([&](const Route& route) { types.insert(route.type); });
    for (const PathType allowed : types) relax_to(allowed);
    assemble();
    return result_;
  }

 private:
  // Which ranks a host has, and which part is like it.
  struct HostRanks {
    std::vector<int> ranks;  // by number
    size_t part = 0;
  };

  bool has_card(int host) const {
    return std::ranges::any_of(graph_.nodes(), [&](const GraphNode& node) {
      return node.host == host && node.kind == NodeKind::nic;
    });
  }

  // By host, where each has a card; else all ranks are one part. Hosts that are alike are searched
  // once.
  void divide() {
    std::map<int, std::vector<int>> by_host;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      by_host[graph_.node(ranks_[rank]).host].push_back(static_cast<int>(rank));
    }
    const bool by_cards = by_host.size() > 1 && std::ranges::all_of(by_host, [&](const auto& host) {
                            return has_card(host.first);
                          });
    if (!by_cards) {
      by_host.clear();
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        by_host[0].push_back(static_cast<int>(rank));
      }
    }
    std::map<std::string, size_t> known;
    for (const auto& [host, numbers] : by_host) {
      const auto [place, is_new] = known.try_emplace(
          by_cards ? cat(likeness(graph_, host), numbers.size()) : "", parts_.size());
      hosts_.push_back({numbers, place->second});
      if (!is_new) continue;
      std::vector<int> nodes;
      for (const int rank : numbers) nodes.push_back(ranks_[static_cast<size_t>(rank)]);
      parts_.emplace_back(graph_, nodes);
      if (by_cards) parts_.back().add_cards(graph_);
    }
  }

  template <typename Visit>
  void for_each_route(Visit visit) const {
    for (const Part& part : parts_) {
      part.for_each_route(visit);
      for (const Card& card : part.cards()) {
        for (const Route& route : card.to) visit(route);
      }
    }
  }

  // Of each link that these paths use: what it carries, or an equal part of it; the widest first.
  std::set<double, std::greater<>> bandwidths(PathType allowed) const {
    std::set<double> carried;
    const auto add = [&](Arc arc) { carried.insert(capacity_[static_cast<size_t>(arc)]); };
    for_each_route([&](const Route& route) {
      if (route.type <= allowed) std::ranges::for_each(route.arcs, add);
    });
    for (const Part& part : parts_) {
      for (const Card& card : part.cards()) add(card.out);
    }
    std::set<double, std::greater<>> parts;
    for (const double GBps : carried) {
      for (int part = 1; part <= kMostParts; ++part) parts.insert(GBps / part);
    }
    return parts;
  }

  void relax_to(PathType allowed) {
    Relaxation& here = result_.relaxations.emplace_back(Relaxation{.allowed = allowed});
    for (const double GBps : bandwidths(allowed)) {
      PackingTask task{.kind = kind_, .allowed = allowed, .GBps = GBps, .most = 32};
      for (const Part& part : parts_) {
        task.most = std::min(task.most, most_channels(part, capacity_, task));
      }
      const double best = result_.found.GBps * static_cast<double>(channels_);
      if (task.most * GBps <= best * kBetter) continue;
      std::vector<std::vector<PackedChannel>> packed;
      for (const Part& part : parts_) {
        packed.push_back(pack_channels(part, capacity_, task));
        task.most = std::min(task.most, static_cast<int>(packed.back().size()));
      }
      if (task.most * GBps <= best * kBetter) continue;
      here.channels = channels_ = task.most;
      here.GBps = result_.found.GBps = GBps;
      result_.found.allowed = allowed;
      packed_ = std::move(packed);
    }
  }

  void assemble() {
    for (int i = 0; i < channels_; ++i) {
      Channel& channel = result_.found.channels.emplace_back();
      std::vector<int> roots;  // the first ranks of each host
      if (kind_ == ChannelKind::tree) channel.parents.assign(ranks_.size(), -1);
      for (const HostRanks& host : hosts_) add_host(channel, host, i, roots);
      if (kind_ == ChannelKind::ring) continue;
      const std::vector<int> tree = tree_of_hosts(static_cast<int>(hosts_.size()), i % 2 == 1);
      for (size_t host = 0; host < tree.size(); ++host) {
        if (tree[host] >= 0) {
          channel.parents[static_cast<size_t>(roots[host])] =
              roots[static_cast<size_t>(tree[host])];
        }
      }
    }
  }

  void add_host(Channel& channel, const HostRanks& host, int index, std::vector<int>& roots) {
    const PackedChannel& packed = packed_[host.part][static_cast<size_t>(index)];
    const auto rank = [&](size_t place) {
      return host.ranks[static_cast<size_t>(packed.order[place])];
    };
    for (size_t place = 0; place < packed.order.size(); ++place) {
      channel.order.push_back(rank(place));
      if (kind_ == ChannelKind::tree && place > 0) {
        channel.parents[static_cast<size_t>(rank(place))] = rank(place - 1);
      }
    }
    roots.push_back(rank(0));
    if (packed.card >= 0) add_card(channel, host, packed);
    // Of hosts that are alike, the first one's links stand for all.
    const bool is_first = &host == &*std::ranges::find(hosts_, host.part, &HostRanks::part);
    if (is_first) {
      channel.arcs.insert(channel.arcs.end(), packed.arcs.begin(), packed.arcs.end());
    }
  }

  // The card of this host that is like the one that was found.
  void add_card(Channel& channel, const HostRanks& host, const PackedChannel& packed) {
    const int number =
        graph_.node(parts_[host.part].cards()[static_cast<size_t>(packed.card)].node).number;
    const int own = graph_.node(ranks_[static_cast<size_t>(host.ranks.front())]).host;
    for (size_t node = 0; node < graph_.nodes().size(); ++node) {
      const GraphNode& card = graph_.nodes()[node];
      if (card.host == own && card.kind == NodeKind::nic && card.number == number) {
        channel.cards.push_back(static_cast<int>(node));
        return;
      }
    }
  }

  const Graph& graph_;
  std::span<const int> ranks_;
  ChannelKind kind_;
  std::vector<double> capacity_;  // by arc
  std::vector<Part> parts_;
  std::vector<HostRanks> hosts_;
  int channels_ = 0;                                // of the best so far
  std::vector<std::vector<PackedChannel>> packed_;  // by part
  ChannelSearch result_;
};

}  // namespace

std::string_view name(ChannelKind kind) { return kind == ChannelKind::ring ? "ring" : "tree"; }

ChannelSearch find_channels(const Graph& graph, std::span<const int> ranks, ChannelKind kind) {
  return Search(graph, ranks, kind).run();
}

std::string to_text(const ChannelSearch& search) {
  std::string text;
  for (const Relaxation& one : search.relaxations) {
    text += cat("paths up to ", name(one.allowed), ": ");
    if (one.channels == 0) {
      text += "nothing better\n";
    } else {
      text += cat(one.channels, ' ', name(search.found.kind), one.channels == 1 ? "" : "s", " of ",
                  one.GBps, " GB/s, ", one.channels * one.GBps, " in all\n");
    }
  }
  return text;
}

std::vector<double> use_of_arcs(const Graph& graph, const Channels& channels) {
  std::vector<double> use(static_cast<size_t>(graph.arcs()));
  for (const Channel& channel : channels.channels) {
    for (const Arc arc : channel.arcs) use[static_cast<size_t>(arc)] += channels.GBps;
  }
  return use;
}

}  // namespace tutti
