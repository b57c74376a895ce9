#include "topology/channel_packing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/mix_bits.h"
#include "base/text.h"

namespace tutti {
namespace {

constexpr int kTries = 48;  // maximum tries per bandwidth, each with different preferences
constexpr int kStepsOfAChannel = 1024;  // maximum number of backtracking steps per channel
constexpr double kRounding = 1e-9;      // relative error of a bandwidth that is tolerated

Route joined(Route first, const Route& second) {
  first.arcs.insert(first.arcs.end(), second.arcs.begin(), second.arcs.end());
  return first;
}

class Packing {
 public:
  Packing(const Part& part, std::span<const double> capacity, const PackingTask& task,
          uint64_t preference, int64_t& steps)
      : part_(part),
        left_(capacity.begin(), capacity.end()),
        task_(task),
        preference_(preference),
        steps_(steps) {}

  std::vector<PackedChannel> run() {
    std::vector<PackedChannel> channels;
    while (static_cast<int>(channels.size()) < task_.most) {
      // Links are bidirectional, so the reverse of a ring may fit as well.
      const bool try_reverse = channels.size() % 2 == 1 && preference_ % 2 == 0;
      if (!(try_reverse && take_reverse(channels.back())) && !find(channels.size())) break;
      channels.push_back(now_);
    }
    return channels;
  }

 private:
  bool is_ring() const { return task_.kind == ChannelKind::ring; }

  // ---- remaining bandwidth

  bool fits(const Route& route) const {
    return route.type <= task_.allowed && std::ranges::all_of(route.arcs, [&](Arc arc) {
             return left_[static_cast<size_t>(arc)] >= task_.GBps * (1 - kRounding);
           });
  }
  void take(std::span<const Arc> arcs) {
    for (const Arc arc : arcs) left_[static_cast<size_t>(arc)] -= task_.GBps;
    now_.arcs.insert(now_.arcs.end(), arcs.begin(), arcs.end());
  }
  // Releases the last `arcs` arcs that were taken.
  void give_back(size_t arcs) {
    for (size_t i = 0; i < arcs; ++i) {
      left_[static_cast<size_t>(now_.arcs.back())] += task_.GBps;
      now_.arcs.pop_back();
    }
  }
  bool fits_and_takes(const Route& route) {
    if (!fits(route)) return false;
    take(route.arcs);
    return true;
  }

  // ---- one channel

  bool find(size_t channel) {
    if (part_.cards().empty()) {
      // A ring visits every rank, so any rank may be the first; the ends of a chain matter.
      for (int i = 0; i < (is_ring() ? 1 : part_.ranks()); ++i) {
        if (try_from(is_ring() ? 0 : (i + static_cast<int>(channel)) % part_.ranks())) return true;
      }
      return false;
    }
    for (const int card : cards_by_rest()) {
      for (const int first : ranks_by_nearness(part_.cards()[static_cast<size_t>(card)])) {
        if (try_by(card, first)) return true;
      }
    }
    return false;
  }

  void start_at(int first, int card) {
    now_ = {.order = {first}, .card = card};
    visited_.assign(static_cast<size_t>(part_.ranks()), 0);
    visited_[static_cast<size_t>(first)] = 1;
    budget_ = kStepsOfAChannel;
  }

  bool try_from(int first) {
    start_at(first, -1);
    return extend();
  }

  // Tries a channel that enters and leaves by the same card. On hosts with equal cards this keeps
  // the rails.
  bool try_by(int index, int first) {
    start_at(first, index);
    const Card& card = part_.cards()[static_cast<size_t>(index)];
    const Route way_in = joined({{card.in}, card.to[static_cast<size_t>(first)].type},
                                card.to[static_cast<size_t>(first)]);
    if (!fits_and_takes(way_in)) return false;
    if (!is_ring()) {
      // The results of a tree enter the host through the card and the chain's first rank, which
      // also sends them on to other hosts through the same card. (A ring leaves the host from its
      // last rank.)
      if (goes_out(card, first) && extend()) return true;
    } else if (extend()) {
      return true;
    }
    give_back(now_.arcs.size());
    return false;
  }

  bool goes_out(const Card& card, int rank) {
    const auto number = static_cast<size_t>(rank);
    return fits_and_takes(joined(card.from[number], {{card.out}})) ||
           fits_and_takes(joined(card.by_peer[number], {{card.out}}));
  }

  bool extend() {
    const int last = now_.order.back();
    if (static_cast<int>(now_.order.size()) == part_.ranks()) return close(last);
    for (const int next : candidates(last)) {
      if (--budget_ < 0 || --steps_ < 0) return false;
      const Route& route = part_.route(last, next);
      take(route.arcs);
      now_.order.push_back(next);
      visited_[static_cast<size_t>(next)] = 1;
      if (extend()) return true;
      visited_[static_cast<size_t>(next)] = 0;
      now_.order.pop_back();
      give_back(route.arcs.size());
    }
    return false;
  }

  bool close(int last) {
    if (!is_ring()) return true;
    if (now_.card >= 0) {
      return goes_out(part_.cards()[static_cast<size_t>(now_.card)], last);
    }
    return part_.ranks() == 1 || fits_and_takes(part_.route(last, now_.order.front()));
  }

  bool take_reverse(const PackedChannel& channel) {
    if (channel.card >= 0 || part_.ranks() == 1) return false;
    now_ = {.order = {channel.order.rbegin(), channel.order.rend()}};
    const size_t hops = now_.order.size() - (is_ring() ? 0 : 1);
    for (size_t i = 0; i < hops; ++i) {
      if (fits_and_takes(part_.route(now_.order[i], now_.order[(i + 1) % now_.order.size()]))) {
        continue;
      }
      give_back(now_.arcs.size());
      return false;
    }
    if (is_ring()) {
      std::rotate(now_.order.begin(), std::ranges::find(now_.order, 0), now_.order.end());
    }
    return true;
  }

  // ---- preferences

  uint64_t by_chance(uint64_t what) const {
    return mix_bits(((preference_ << 48) ^ what) + kGolden);
  }

  // Returns the candidates for the next rank: near ones first, equally near ones in an order that
  // depends on the try.
  std::vector<int> candidates(int last) const {
    std::vector<std::tuple<PathType, double, uint64_t, int>> sorted;
    const int ranks = part_.ranks();
    for (int next = 0; next < ranks; ++next) {
      const Route& route = part_.route(last, next);
      if (visited_[static_cast<size_t>(next)] != 0 || !fits(route)) continue;
      double narrowest = std::numeric_limits<double>::infinity();
      for (const Arc arc : route.arcs) {
        narrowest = std::min(narrowest, left_[static_cast<size_t>(arc)]);
      }
      // The first two tries order by remaining bandwidth, then by the distance in rank order; the
      // next two by that distance only; later tries at random.
      const bool by_rest = preference_ < 2;
      const auto distance = static_cast<uint64_t>((next - last + ranks) % ranks);
      const auto step = (static_cast<uint64_t>(last) << 32) + (static_cast<uint64_t>(next) << 16) +
                        now_.order.size();
      sorted.emplace_back(route.type, by_rest ? -narrowest : 0,
                          preference_ < 4 ? distance : by_chance(step), next);
    }
    std::ranges::sort(sorted);
    std::vector<int> result;
    for (const auto& entry : sorted) result.push_back(std::get<3>(entry));
    return result;
  }

  std::vector<int> cards_by_rest() const {
    std::vector<std::pair<double, int>> sorted;
    for (size_t i = 0; i < part_.cards().size(); ++i) {
      const Card& card = part_.cards()[i];
      sorted.emplace_back(
          -std::min(left_[static_cast<size_t>(card.in)], left_[static_cast<size_t>(card.out)]),
          static_cast<int>(i));
    }
    std::ranges::sort(sorted);
    std::vector<int> result;
    for (const auto& entry : sorted) result.push_back(entry.second);
    return result;
  }

  std::vector<int> ranks_by_nearness(const Card& card) const {
    std::vector<std::tuple<PathType, uint64_t, int>> sorted;
    for (int rank = 0; rank < part_.ranks(); ++rank) {
      const auto number = static_cast<uint64_t>(rank);
      sorted.emplace_back(card.to[number].type, preference_ < 4 ? number : by_chance(number), rank);
    }
    std::ranges::sort(sorted);
    std::vector<int> result;
    for (const auto& entry : sorted) result.push_back(std::get<2>(entry));
    return result;
  }

  const Part& part_;
  std::vector<double> left_;  // by arc: remaining bandwidth
  PackingTask task_;
  uint64_t preference_;
  PackedChannel now_;
  std::vector<char> visited_;
  int budget_ = 0;
  int64_t& steps_;
};

}  // namespace

Part::Part(const Graph& graph, std::span<const int> ranks, std::span<const int> host) {
  if (ranks.size() > kMostRanks) {
    throw Error(ErrorCode::unsupported,
                cat("the search for channels is limited to ", kMostRanks,
                    " ranks unless every host has a network card, got ", ranks.size()),
                {.remedy = "ask for fewer ranks with -n"});
  }
  for (const int from : ranks) routes_.push_back(ways_from(graph, from, ranks));
  if (!host.empty()) add_cards(graph, ranks, host);
}

void Part::add_cards(const Graph& graph, std::span<const int> ranks, std::span<const int> host) {
  for (size_t place = 0; place < host.size(); ++place) {
    if (graph.node(host[place]).kind != NodeKind::nic) continue;
    Card card{.node = host[place], .place = place, .out = -1};
    for (const Arc arc : graph.arcs_from(card.node)) {
      if (graph.link_of(arc).kind == LinkClass::network) card.out = arc;
    }
    if (card.out < 0) continue;
    card.in = card.out ^ 1;
    card.to = routes_from(graph, card.node, ranks);
    if (card.to.front().type != PathType::DIS) cards_.push_back(std::move(card));
  }
  std::vector<int> nodes;
  for (const Card& card : cards_) nodes.push_back(card.node);
  for (const int rank : ranks) {
    std::vector<Route> routes = routes_from(graph, rank, nodes);
    for (size_t i = 0; i < nodes.size(); ++i) cards_[i].from.push_back(std::move(routes[i]));
  }
  for (Card& card : cards_) add_ways_by_peers(card);
  if (cards_.empty()) {
    throw Error(ErrorCode::invalid_argument,
                cat("there is no path from ", graph.node(ranks.front()).name, " to a card"),
                {.cause = "the source of the graph lacks links"});
  }
}

void Part::add_ways_by_peers(Card& card) const {
  card.by_peer.assign(card.from.size(), {});
  const auto nearest = std::ranges::min_element(card.from, {}, &Route::type);
  if (nearest->type > PathType::PXB) return;
  const auto peer = static_cast<int>(nearest - card.from.begin());
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto number = static_cast<size_t>(rank);
    if (rank == peer || card.from[number].type <= PathType::PXB) continue;
    if (route(rank, peer).type > PathType::NVL) continue;
    Route way = joined(route(rank, peer), *nearest);
    way.type = PathType::PXN;
    way.GBps = std::min(way.GBps, nearest->GBps);
    way.latency_us += nearest->latency_us;
    card.by_peer[number] = std::move(way);
  }
}

int most_channels(const Part& part, std::span<const double> capacity, const PackingTask& task) {
  const auto carries = [&](const std::set<Arc>& arcs) {
    double channels = 0;
    for (const Arc arc : arcs) {
      channels += std::floor(capacity[static_cast<size_t>(arc)] / task.GBps + kRounding);
    }
    return static_cast<int>(std::min<double>(channels, kMostChannels));
  };
  int most = kMostChannels;
  if (!part.cards().empty()) {
    std::set<Arc> out;
    for (const Card& card : part.cards()) out.insert(card.out);
    most = std::min(most, carries(out));
  }
  if (part.ranks() == 1) return most;
  int in_all = 0;
  int fewest = most;
  for (int rank = 0; rank < part.ranks(); ++rank) {
    std::set<Arc> out;
    std::set<Arc> in;
    for (int other = 0; other < part.ranks(); ++other) {
      if (other == rank) continue;
      const Route& there = part.route(rank, other);
      const Route& back = part.route(other, rank);
      if (there.type <= task.allowed) out.insert(there.arcs.front());
      if (back.type <= task.allowed) in.insert(back.arcs.back());
    }
    for (const Card& card : part.cards()) {
      const Route& back = card.to[static_cast<size_t>(rank)];
      for (const std::vector<Route>* ways : {&card.from, &card.by_peer}) {
        const Route& there = (*ways)[static_cast<size_t>(rank)];
        if (there.type <= task.allowed) out.insert(there.arcs.front());
      }
      if (back.type <= task.allowed) in.insert(back.arcs.back());
    }
    const int both = std::min(carries(out), carries(in));
    in_all += both;
    fewest = std::min(fewest, both);
  }
  // A chain has a link from every rank except its last one.
  return task.kind == ChannelKind::ring ? fewest : std::min(most, in_all / (part.ranks() - 1));
}

std::vector<PackedChannel> pack_channels(const Part& part, std::span<const double> capacity,
                                         const PackingTask& task) {
  std::vector<PackedChannel> best;
  // The maximum number of steps decreases with the number of ranks, because each step inspects
  // every rank, and every link on the way to that rank.
  const auto ranks = static_cast<int64_t>(part.ranks());
  int64_t steps = std::max(4 * ranks, 2000000 / (ranks * ranks));
  for (uint64_t preference = 0; preference < kTries && steps > 0; ++preference) {
    std::vector<PackedChannel> channels = Packing(part, capacity, task, preference, steps).run();
    if (channels.size() > best.size()) best = std::move(channels);
    if (static_cast<int>(best.size()) == task.most) break;
  }
  return best;
}

}  // namespace tutti
