#include "topology/channels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace tutti {
namespace {

constexpr int kMostChannels = 32;
constexpr int kMostRankOrders = 48;      // tries of one bandwidth, each with other preferences
constexpr int kStepsOfAnOrder = 4096;    // of backtracking, for one channel
constexpr int64_t kStepsInAll = 100000;  // of one search
constexpr double kRounding = 1e-6;       // GB/s
// A farther path has to be worth it.
constexpr double kBetter = 1.001;
// Inside one GPU (NCCL's LOC_BW): what a channel of a single rank has.
constexpr double kLocalGBps = 5000;

uint64_t mix(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// All routes between ranks.
class Ways {
 public:
  explicit Ways(const Graph& graph) : nodes_(graph.rank_nodes()) {
    for (const int from : nodes_) {
      std::vector<Route> all = routes_from(graph, from);
      std::vector<Route>& kept = routes_.emplace_back();
      for (const int to : nodes_) kept.push_back(std::move(all[static_cast<size_t>(to)]));
      for (size_t to = 0; to < nodes_.size(); ++to) {
        if (kept[to].type != PathType::DIS) continue;
        throw Error(ErrorCode::invalid_argument,
                    cat("there is no way from ", graph.node(from).name, " to ",
                        graph.node(nodes_[to]).name),
                    {.remedy = "links that are missing may be added to the file"});
      }
    }
  }
  int ranks() const { return static_cast<int>(nodes_.size()); }
  const Route& operator()(int from, int to) const {
    return routes_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }

 private:
  std::vector<int> nodes_;
  std::vector<std::vector<Route>> routes_;
};

std::vector<double> capacities(const Graph& graph) {
  std::vector<double> capacity(static_cast<size_t>(graph.arcs()));
  for (size_t arc = 0; arc < capacity.size(); ++arc) {
    capacity[arc] = graph.link_of(static_cast<Arc>(arc)).GBps;
  }
  return capacity;
}

// As many channels of one bandwidth as fit.
class Packing {
 public:
  Packing(const Ways& ways, const std::vector<double>& capacity, ChannelKind kind, PathType allowed,
          double GBps, int64_t& steps)
      : ways_(ways), left_(capacity), kind_(kind), allowed_(allowed), GBps_(GBps), steps_(steps) {}

  std::vector<std::vector<int>> run(int order, int most) {
    preference_ = order;
    std::vector<std::vector<int>> channels;
    while (static_cast<int>(channels.size()) < most) {
      // Links carry both directions: what goes one way goes the other way, too.
      if (channels.size() % 2 == 1 && preference_ % 2 == 0 && take_reverse(channels.back())) {
        channels.push_back(order_);
        continue;
      }
      if (!find_one(static_cast<int>(channels.size()))) break;
      channels.push_back(order_);
    }
    return channels;
  }

 private:
  bool fits(const Route& route) const {
    return route.type <= allowed_ && std::ranges::all_of(route.arcs, [&](Arc arc) {
             return left_[static_cast<size_t>(arc)] >= GBps_ - kRounding;
           });
  }
  // A route may use a link once only, so taking is the same as checking each link.
  void take(const Route& route, double sign = 1) {
    for (const Arc arc : route.arcs) left_[static_cast<size_t>(arc)] -= sign * GBps_;
  }

  bool take_reverse(const std::vector<int>& channel) {
    order_.assign(channel.rbegin(), channel.rend());
    size_t taken = 0;
    const size_t hops = order_.size() - (kind_ == ChannelKind::ring ? 0 : 1);
    const auto hop = [&](size_t i) -> const Route& {
      return ways_(order_[i], order_[(i + 1) % order_.size()]);
    };
    while (taken < hops && fits(hop(taken))) take(hop(taken++));
    if (taken == hops) {
      if (kind_ == ChannelKind::ring) std::ranges::rotate(order_, std::ranges::find(order_, 0));
      return true;
    }
    while (taken > 0) take(hop(--taken), -1);
    return false;
  }

  bool find_one(int channel) {
    const int ranks = ways_.ranks();
    // A ring passes everybody, so it may start anywhere; a chain's ends matter.
    const int starts = kind_ == ChannelKind::ring ? 1 : ranks;
    for (int i = 0; i < starts; ++i) {
      const int first = kind_ == ChannelKind::ring ? 0 : (i + channel) % ranks;
      order_.assign(1, first);
      visited_.assign(static_cast<size_t>(ranks), 0);
      visited_[static_cast<size_t>(first)] = 1;
      budget_ = kStepsOfAnOrder;
      if (extend()) return true;
    }
    return false;
  }

  bool extend() {
    const int last = order_.back();
    if (static_cast<int>(order_.size()) == ways_.ranks()) {
      if (kind_ == ChannelKind::tree) return true;
      const Route& closing = ways_(last, order_.front());
      if (!fits(closing)) return false;
      take(closing);
      return true;
    }
    for (const int next : candidates(last)) {
      if (--budget_ < 0 || --steps_ < 0) return false;
      const Route& route = ways_(last, next);
      take(route);
      order_.push_back(next);
      visited_[static_cast<size_t>(next)] = 1;
      if (extend()) return true;
      visited_[static_cast<size_t>(next)] = 0;
      order_.pop_back();
      take(route, -1);
    }
    return false;
  }

  // Near before far; then where the most is left, and by an order that differs from try to try.
  std::vector<int> candidates(int last) const {
    std::vector<std::tuple<PathType, double, uint64_t, int>> sorted;
    const int ranks = ways_.ranks();
    for (int next = 0; next < ranks; ++next) {
      if (visited_[static_cast<size_t>(next)] != 0) continue;
      const Route& route = ways_(last, next);
      if (!fits(route)) continue;
      double narrowest = std::numeric_limits<double>::infinity();
      for (const Arc arc : route.arcs) {
        narrowest = std::min(narrowest, left_[static_cast<size_t>(arc)]);
      }
      const auto distance = static_cast<uint64_t>((next - last + ranks) % ranks);
      // The first tries go by what is left and by number, the later ones by chance.
      const bool by_rest = preference_ < 4 && preference_ % 4 < 2;
      const uint64_t place =
          preference_ < 4 ? distance
                          : mix((static_cast<uint64_t>(preference_) << 32) ^
                                (static_cast<uint64_t>(order_.size()) << 16) ^
                                static_cast<uint64_t>(last * 1024 + next));
      sorted.emplace_back(route.type, by_rest ? -narrowest : 0, place, next);
    }
    std::ranges::sort(sorted);
    std::vector<int> result;
    for (const auto& entry : sorted) result.push_back(std::get<3>(entry));
    return result;
  }

  const Ways& ways_;
  std::vector<double> left_;  // by arc
  ChannelKind kind_;
  PathType allowed_;
  double GBps_;
  int preference_ = 0;
  std::vector<int> order_;
  std::vector<char> visited_;
  int budget_ = 0;
  int64_t& steps_;
};

class Search {
 public:
  Search(const Graph& graph, ChannelKind kind)
      : ways_(graph), capacity_(capacities(graph)), kind_(kind) {}

  ChannelSearch run() {
    result_.found.kind = kind_;
    if (ways_.ranks() == 0) return result_;
    if (ways_.ranks() == 1) {
      result_.found.orders = {{0}};
      result_.found.GBps = kLocalGBps;
      return result_;
    }
    std::set<PathType> types;
    for_each_pair([&](const Route& route) { types.insert(route.type); });
    for (const PathType allowed : types) try_paths(allowed);
    finish();
    return result_;
  }

 private:
  template <typename Visit>
  void for_each_pair(Visit visit) const {
    for (int from = 0; from < ways_.ranks(); ++from) {
      for (int to = 0; to < ways_.ranks(); ++to) {
        if (from != to) visit(ways_(from, to));
      }
    }
  }

  void try_paths(PathType allowed) {
    Relaxation best_here{.allowed = allowed};
    for (const double GBps : bandwidths(allowed)) {
      const int most = most_channels(allowed, GBps);
      const double total = result_.found.total_GBps();
      if (most * GBps <= total * kBetter) continue;
      const std::vector<std::vector<int>> channels = pack(allowed, GBps, most);
      const double found = GBps * static_cast<double>(channels.size());
      if (found > best_here.GBps * best_here.channels * kBetter) {
        best_here.channels = static_cast<int>(channels.size());
        best_here.GBps = GBps;
      }
      if (found > total * kBetter) {
        result_.found.orders = channels;
        result_.found.GBps = GBps;
        best_here.taken = true;
      }
    }
    if (best_here.taken) {
      for (Relaxation& earlier : result_.tries) earlier.taken = false;
    }
    result_.tries.push_back(best_here);
  }

  // Of each link that these paths use: what it carries, or an equal part of it; the widest first.
  std::vector<double> bandwidths(PathType allowed) const {
    std::set<double> carried;
    for_each_pair([&](const Route& route) {
      if (route.type > allowed) return;
      for (const Arc arc : route.arcs) carried.insert(capacity_[static_cast<size_t>(arc)]);
    });
    std::set<double, std::greater<>> parts;
    for (const double GBps : carried) {
      for (int part = 1; part <= kMostChannels / 2; ++part) parts.insert(GBps / part);
    }
    return {parts.begin(), parts.end()};
  }

  // However they run: each rank's links carry so many away from it, and to it.
  int most_channels(PathType allowed, double GBps) const {
    int fewest = kMostChannels;
    int64_t in_all = 0;
    for (int rank = 0; rank < ways_.ranks(); ++rank) {
      std::set<Arc> out;
      std::set<Arc> in;
      for (int other = 0; other < ways_.ranks(); ++other) {
        if (other == rank) continue;
        if (ways_(rank, other).type <= allowed) out.insert(ways_(rank, other).arcs.front());
        if (ways_(other, rank).type <= allowed) in.insert(ways_(other, rank).arcs.back());
      }
      const auto carries = [&](const std::set<Arc>& arcs) {
        int channels = 0;
        for (const Arc arc : arcs) {
          channels += static_cast<int>((capacity_[static_cast<size_t>(arc)] + kRounding) / GBps);
        }
        return channels;
      };
      const int both = std::min(carries(out), carries(in));
      in_all += both;
      fewest = std::min(fewest, both);
    }
    // A chain leaves every rank but its last one.
    if (kind_ == ChannelKind::ring) return fewest;
    return static_cast<int>(std::min<int64_t>(kMostChannels, in_all / (ways_.ranks() - 1)));
  }

  std::vector<std::vector<int>> pack(PathType allowed, double GBps, int most) {
    std::vector<std::vector<int>> best;
    int64_t steps = kStepsInAll;
    for (int order = 0; order < kMostRankOrders && steps > 0; ++order) {
      Packing packing(ways_, capacity_, kind_, allowed, GBps, steps);
      std::vector<std::vector<int>> channels = packing.run(order, most);
      if (channels.size() > best.size()) best = std::move(channels);
      if (static_cast<int>(best.size()) == most) break;
    }
    return best;
  }

  void finish() {
    for (const std::vector<int>& order : result_.found.orders) {
      for (size_t i = 0; i + (kind_ == ChannelKind::tree ? 1 : 0) < order.size(); ++i) {
        result_.found.farthest = std::max(
            result_.found.farthest, ways_(order[i], order[(i + 1) % order.size()]).type);
      }
    }
  }

  Ways ways_;
  std::vector<double> capacity_;
  ChannelKind kind_;
  ChannelSearch result_;
};

}  // namespace

std::string_view name(ChannelKind kind) { return kind == ChannelKind::ring ? "ring" : "tree"; }

ChannelSearch find_channels(const Graph& graph, ChannelKind kind) {
  return Search(graph, kind).run();
}

std::string to_text(const ChannelSearch& search) {
  const std::string kind(name(search.found.kind));
  std::string text;
  for (const Relaxation& one : search.tries) {
    text += cat("paths up to ", name(one.allowed), ": ");
    if (one.channels == 0) {
      text += "nothing more";
    } else {
      text += cat(one.channels, ' ', kind, one.channels == 1 ? "" : "s", " of ", one.GBps,
                  " GB/s, ", one.channels * one.GBps, " in all", one.taken ? "; taken" : "");
    }
    text += '\n';
  }
  return text;
}

std::vector<double> use_of_arcs(const Graph& graph, const Channels& channels) {
  std::vector<double> use(static_cast<size_t>(graph.arcs()));
  const Ways ways(graph);
  for (const std::vector<int>& order : channels.orders) {
    const size_t hops = channels.kind == ChannelKind::ring ? order.size() : order.size() - 1;
    for (size_t i = 0; order.size() > 1 && i < hops; ++i) {
      for (const Arc arc : ways(order[i], order[(i + 1) % order.size()]).arcs) {
        use[static_cast<size_t>(arc)] += channels.GBps;
      }
    }
  }
  return use;
}

}  // namespace tutti
