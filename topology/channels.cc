#include "topology/channels.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "topology/channel_packing.h"
#include "topology/cycles.h"

namespace tutti {
namespace {

// A channel may have 1, 1/2, 1/3 ... 1/kMostParts of a link's bandwidth.
constexpr int kMostParts = 16;
// Minimum factor by which a later try must increase the best total bandwidth so far.
constexpr double kBetter = 1.001;
// Bandwidth inside one GPU (NCCL's LOC_BW). A channel with a single rank has this bandwidth.
constexpr double kLocalGBps = 5000;

// Returns a text that describes a host independently of its number and of its nodes' indices in the
// graph. `ranks`: graph nodes of its ranks. Hosts with equal texts have equal channels.
std::string likeness(const Graph& graph, std::span<const int> nodes, std::span<const int> ranks) {
  std::map<int, int> place;
  for (const int node : nodes) place.emplace(node, static_cast<int>(place.size()));
  std::string text;
  for (const int node : nodes) {
    text += cat(name(graph.node(node).kind), ' ');
    for (const Arc arc : graph.arcs_from(node)) {
      const auto other = place.find(graph.head(arc));
      if (other != place.end() && arc % 2 != 0) continue;  // described at its other end
      const GraphLink& link = graph.link_of(arc);
      text += cat(name(link.kind), link.GBps, '-', other == place.end() ? -1 : other->second, ' ');
    }
  }
  for (const int rank : ranks) text += cat('r', place.at(rank), ' ');
  return text;
}

// Returns the parent of a host in a binary tree with root 0 (parent -1), in which every odd host is
// a leaf. Of 7 hosts: 0 has child 4; 4 has 2 and 6; 2 has 1 and 3; 6 has 5.
int parent_of(int host, int hosts) {
  if (host == 0) return -1;
  const int bit = host & -host;
  const int above = (host ^ bit) | (bit << 1);
  return above < hosts ? above : host ^ bit;
}

// Returns the parents of all hosts in the first or the second tree. In the second, the inner hosts
// of the first are leaves: it is mirrored, or shifted by one if mirroring would map leaves to
// leaves.
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
    types.erase(PathType::DIS);  // a card need not reach each rank
    for (const PathType allowed : types) relax_to(allowed);
    if (kind_ == ChannelKind::ring && graph_.ends_forward()) take_cycles();
    assemble();
    return result_;
  }

 private:
  // The ranks of a host, its nodes, and the index of its part, which equal hosts share.
  struct HostRanks {
    std::vector<int> ranks;  // indices into ranks_
    std::vector<int> nodes;
    size_t part = 0;
  };

  std::vector<int> nodes_of(std::span<const int> ranks) const {
    std::vector<int> nodes;
    for (const int rank : ranks) nodes.push_back(ranks_[static_cast<size_t>(rank)]);
    return nodes;
  }

  bool has_card(const HostRanks& host) const {
    return std::ranges::any_of(host.nodes, [&](int node) {
      return graph_.node(node).kind == NodeKind::nic &&
             std::ranges::any_of(graph_.arcs_from(node), [&](Arc arc) {
               return graph_.link_of(arc).kind == LinkClass::network;
             });
    });
  }

  // Divides the ranks by host if each host has a card; otherwise all ranks form one part. Of
  // several equal hosts only one is searched.
  void divide() {
    std::map<int, HostRanks> by_host;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      by_host[graph_.node(ranks_[rank]).host].ranks.push_back(static_cast<int>(rank));
    }
    for (size_t node = 0; node < graph_.nodes().size(); ++node) {
      const auto host = by_host.find(graph_.nodes()[node].host);
      if (host != by_host.end()) host->second.nodes.push_back(static_cast<int>(node));
    }
    const bool by_cards = by_host.size() > 1 && std::ranges::all_of(by_host, [&](const auto& host) {
                            return has_card(host.second);
                          });
    if (!by_cards) {
      std::vector<int> all(ranks_.size());
      std::iota(all.begin(), all.end(), 0);
      hosts_.push_back({.ranks = all, .nodes = {}});
      parts_.emplace_back(graph_, ranks_, std::span<const int>());
      return;
    }
    check_network(by_host);
    std::map<std::string, size_t> known;
    for (auto& [number, host] : by_host) {
      const std::vector<int> nodes = nodes_of(host.ranks);
      const auto [place, is_new] =
          known.try_emplace(likeness(graph_, host.nodes, nodes), parts_.size());
      if (is_new) parts_.emplace_back(graph_, nodes, host.nodes);
      host.part = place->second;
      hosts_.push_back(std::move(host));
    }
  }

  // Throws if the hosts are not connected, which a search within each host would not detect.
  void check_network(const std::map<int, HostRanks>& by_host) const {
    std::vector<int> firsts;
    for (const auto& [number, host] : by_host) {
      firsts.push_back(ranks_[static_cast<size_t>(host.ranks.front())]);
    }
    (void)ways_from(graph_, firsts.front(), firsts);
  }

  template <typename Visit>
  void for_each_route(Visit visit) const {
    for (const Part& part : parts_) {
      part.for_each_route(visit);
      for (const Card& card : part.cards()) {
        for (const Route& route : card.to) visit(route);
        for (const Route& route : card.by_peer) visit(route);
      }
    }
  }

  // Returns the bandwidths to try, the widest first: 1, 1/2, 1/3 ... 1/kMostParts of the capacity
  // of each link that a path of an allowed type uses, and of each card's link to the network.
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
      PackingTask task{
          .kind = kind_, .allowed = allowed, .GBps = GBps, .most = kMostChannels / trees_of_one()};
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
      packed_ = std::move(packed);
    }
  }

  // Tries Hamiltonian cycles, in both directions, for rings, meshes and tori of ranks whose links
  // have equal bandwidth.
  void take_cycles() {
    std::map<int, int> rank_at;
    for (const int node : ranks_) rank_at.emplace(node, static_cast<int>(rank_at.size()));
    std::vector<std::vector<int>> neighbours(ranks_.size());
    std::map<std::pair<int, int>, Arc> arc_between;
    const double GBps = capacity_.front();
    for (Arc arc = 0; arc < graph_.arcs(); ++arc) {
      const auto from = rank_at.find(graph_.tail(arc));
      const auto to = rank_at.find(graph_.head(arc));
      if (from == rank_at.end() || to == rank_at.end() || graph_.link_of(arc).GBps != GBps) return;
      if (!arc_between.try_emplace({from->second, to->second}, arc).second) return;
      neighbours[static_cast<size_t>(from->second)].push_back(to->second);
    }
    std::vector<PackedChannel> packed;
    for (std::vector<int>& cycle : hamiltonian_cycles(neighbours)) {
      for (int way = 0; way < 2; ++way) {
        PackedChannel& channel = packed.emplace_back(PackedChannel{.order = cycle});
        for (size_t i = 0; i < cycle.size(); ++i) {
          channel.arcs.push_back(arc_between.at({cycle[i], cycle[(i + 1) % cycle.size()]}));
        }
        std::reverse(cycle.begin() + 1, cycle.end());
      }
    }
    const double best = result_.found.GBps * static_cast<double>(channels_);
    if (packed.size() > kMostChannels || GBps * static_cast<double>(packed.size()) <= best) return;
    Relaxation& last = result_.relaxations.back();
    last.channels = channels_ = static_cast<int>(packed.size());
    last.GBps = result_.found.GBps = GBps;
    packed_ = {std::move(packed)};
  }

  // Returns the number of trees per channel. In a tree, an inner host has up to two children and a
  // leaf has none. So each tree over more than two hosts becomes two trees of half the bandwidth,
  // which exchange these roles and use the same card.
  int trees_of_one() const { return kind_ == ChannelKind::tree && hosts_.size() > 2 ? 2 : 1; }

  void assemble() {
    const int times = trees_of_one();
    result_.found.GBps /= times;
    for (Relaxation& one : result_.relaxations) {
      one.GBps /= times;
      one.channels *= times;
    }
    for (int i = 0; i < channels_ * times; ++i) {
      Channel& channel = result_.found.channels.emplace_back();
      std::vector<int> roots;  // the first rank of each host
      if (kind_ == ChannelKind::tree) channel.parents.assign(ranks_.size(), -1);
      for (size_t host = 0; host < hosts_.size(); ++host) add_host(channel, host, i / times, roots);
      if (kind_ == ChannelKind::ring) continue;
      const std::vector<int> tree =
          tree_of_hosts(static_cast<int>(hosts_.size()), times == 2 && i % 2 == 1);
      for (size_t host = 0; host < tree.size(); ++host) {
        if (tree[host] >= 0) {
          channel.parents[static_cast<size_t>(roots[host])] =
              roots[static_cast<size_t>(tree[host])];
        }
      }
    }
  }

  void add_host(Channel& channel, size_t index, int which, std::vector<int>& roots) {
    const HostRanks& host = hosts_[index];
    const PackedChannel& packed = packed_[host.part][static_cast<size_t>(which)];
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
    if (packed.card >= 0) {  // the card with the same index as on the host that was searched
      const Card& card = parts_[host.part].cards()[static_cast<size_t>(packed.card)];
      channel.cards.push_back(host.nodes[card.place]);
    }
    const bool is_searched = std::ranges::find(hosts_, host.part, &HostRanks::part) ==
                             hosts_.begin() + static_cast<ptrdiff_t>(index);
    if (is_searched) {
      channel.arcs.insert(channel.arcs.end(), packed.arcs.begin(), packed.arcs.end());
    }
  }

  const Graph& graph_;
  std::span<const int> ranks_;
  ChannelKind kind_;
  std::vector<double> capacity_;  // by arc: bandwidth
  std::vector<Part> parts_;
  std::vector<HostRanks> hosts_;
  int channels_ = 0;                                // number of channels of the best result so far
  std::vector<std::vector<PackedChannel>> packed_;  // by part: its channels
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
      text += "no improvement\n";
    } else {
      text += cat(one.channels, ' ', name(search.found.kind), one.channels == 1 ? "" : "s", " of ",
                  one.GBps, " GB/s, ", one.channels * one.GBps, " in total\n");
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
