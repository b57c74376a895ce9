#include "collectives/simulate/rounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/simulate/schedule.h"

namespace tutti {

namespace {

constexpr double kBytesOfGBps = 1e3;  // bytes per us at 1 GB/s

// Distances from a rank to the receivers of its messages, and the number of chunks per message if
// it is equal in all messages.
struct Sends {
  std::multiset<int> distances;
  int32_t chunks = 0;  // chunks per message; -1: they differ
};

Sends sends_of(const Program& program, int rank, int ranks) {
  Sends sends;
  for (const Step& step : program.steps) {
    if (step.kind != StepKind::send) continue;
    int32_t chunks = 0;
    for (const ChunkRange& range : step.src) chunks += range.count;
    const bool is_first = sends.distances.empty();
    sends.chunks = is_first || sends.chunks == chunks ? chunks : -1;
    for (const int32_t peer : step.peers) sends.distances.insert((peer - rank + ranks) % ranks);
  }
  return sends;
}

bool to_next(const Sends& sends) { return sends.distances.count(1) == sends.distances.size(); }

bool to_everyone(const Sends& sends, int ranks) {
  const std::multiset<int>& all = sends.distances;
  return static_cast<int>(all.size()) == ranks - 1 &&
         std::set(all.begin(), all.end()).size() == all.size();
}

class Ways {
 public:
  Ways(Network& network, int ranks) : network_(network), ranks_(ranks) {}

  const std::vector<Arc>& to(int rank, int distance) {
    const int peer = static_cast<int>((int64_t{rank} + distance) % ranks_);
    arcs_.clear();
    ways_ = network_.route(rank, peer, arcs_);
    if (ways_ > 0) return arcs_;
    throw Error(ErrorCode::connection_lost,
                cat("there is no path from rank ", rank, " to rank ", peer));
  }
  double latency_us() const { return network_.slowest_us(arcs_, ways_); }
  // Returns the fraction of a message that each of its paths carries.
  double part() const { return 1.0 / ways_; }

 private:
  Network& network_;
  int ranks_;
  std::vector<Arc> arcs_;
  int ways_ = 1;
};

double us_on(const Network& network, Arc arc, double bytes) {
  return bytes / (kBytesOfGBps * network.GBps(arc));
}

void note_busiest(const Network& network, Arc arc, double bytes, SimulationResult& result) {
  const double part = us_on(network, arc, bytes) / result.time_us;
  if (result.busiest && part <= result.busiest_part) return;
  result.busiest = arc;
  result.busiest_part = part;
}

void play_ring(const Rounds& rounds, Network& network, int ranks, SimulationResult& result) {
  Ways ways(network, ranks);
  // Number of messages per round over each arc.
  std::vector<double> load(static_cast<size_t>(network.graph().arcs()));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Arc arc : ways.to(rank, 1)) load[static_cast<size_t>(arc)] += ways.part();
  }
  std::vector<double> hops;  // by rank: time of the hop to the next rank
  double longest = 0;
  double busy = 0;
  Arc busiest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    double slowest = 0;
    for (const Arc arc : ways.to(rank, 1)) {
      const double us = us_on(network, arc, rounds.bytes * load[static_cast<size_t>(arc)]);
      slowest = std::max(slowest, us);
      if (us > busy) {
        busy = us;
        busiest = arc;
      }
    }
    hops.push_back(slowest + ways.latency_us());
    longest = std::max(longest, ways.latency_us());
  }
  // Time of rounds.count consecutive hops, for every starting rank.
  const auto count = static_cast<size_t>(rounds.count);
  double run = 0;
  for (size_t i = 0; i < count; ++i) run += hops[i % hops.size()];
  double slowest = run;
  for (size_t first = 0; first < hops.size(); ++first) {
    run += hops[(first + count) % hops.size()] - hops[first];
    slowest = std::max(slowest, run);
  }
  const auto all = static_cast<double>(rounds.count);
  result.time_us = std::max(slowest, all * busy + longest);
  note_busiest(network, busiest, all * rounds.bytes * load[static_cast<size_t>(busiest)], result);
}

// Properties of an arc. In a uniform network, arcs with equal properties have equal load.
using LikeArcs = std::tuple<NodeKind, NodeKind, size_t, size_t, double>;

LikeArcs likeness(const Network& network, Arc arc) {
  const Graph& graph = network.graph();
  const int tail = graph.tail(arc);
  const int head = graph.head(arc);
  return {graph.node(tail).kind, graph.node(head).kind, graph.arcs_from(tail).size(),
          graph.arcs_from(head).size(), network.GBps(arc)};
}

// Returns the distances between ranks for which routes are computed: all distances, or, among many
// ranks, a limited number of evenly distributed distances.
std::vector<int> distances(int ranks) {
  constexpr int kMostRoutes = 4'000'000;
  const int most = std::max(8, kMostRoutes / ranks);
  std::vector<int> chosen;
  if (ranks - 1 <= most) {
    for (int d = 1; d < ranks; ++d) chosen.push_back(d);
    return chosen;
  }
  // Multiples of the golden ratio are used, because they do not coincide with any period of the
  // network.
  for (int i = 0; i < most; ++i) {
    const double part = std::fmod(0.5 + 0.6180339887498949 * i, 1.0);
    chosen.push_back(1 + static_cast<int>(part * (ranks - 1)));
  }
  return chosen;
}

void play_everyone(const Rounds& rounds, Network& network, int ranks, SimulationResult& result) {
  struct Load {
    double messages = 0;
    std::set<Arc> arcs;
    Arc first = 0;
  };
  Ways ways(network, ranks);
  std::vector<double> load(static_cast<size_t>(network.graph().arcs()));
  double longest = 0;
  const std::vector<int> chosen = distances(ranks);
  for (const int distance : chosen) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Arc arc : ways.to(rank, distance)) load[static_cast<size_t>(arc)] += ways.part();
      longest = std::max(longest, ways.latency_us());
    }
  }
  const double scale = static_cast<double>(rounds.count) / static_cast<double>(chosen.size());
  const bool has_all = static_cast<int64_t>(chosen.size()) == rounds.count;
  std::map<LikeArcs, std::pair<double, int>> like;  // numbers of messages and arcs
  for (Arc arc = 0; arc < network.graph().arcs(); ++arc) {
    auto& [messages, arcs] = like[likeness(network, arc)];
    messages += load[static_cast<size_t>(arc)];
    ++arcs;
  }
  double most_us = 0;
  Arc busiest = 0;
  double its_bytes = 0;
  for (Arc arc = 0; arc < network.graph().arcs(); ++arc) {
    const auto& [messages, arcs] = like[likeness(network, arc)];
    const double its = has_all ? load[static_cast<size_t>(arc)] : messages / arcs;
    const double bytes = its * scale * rounds.bytes;
    if (us_on(network, arc, bytes) <= most_us) continue;
    most_us = us_on(network, arc, bytes);
    busiest = arc;
    its_bytes = bytes;
  }
  result.time_us = most_us + longest;
  note_busiest(network, busiest, its_bytes, result);
}

}  // namespace

std::optional<Rounds> rounds_of(const Algorithm& algorithm, const Shape& shape, double bytes) {
  if (shape.ranks < 3 || has_root(algorithm.collective)) return std::nullopt;
  std::optional<Sends> first;
  int32_t chunks = 0;
  for (const int rank : {0, shape.ranks / 2, shape.ranks - 1}) {
    Shape one = shape;
    one.rank = rank;
    const Program program = program_of(algorithm, one);
    Sends sends = sends_of(program, rank, shape.ranks);
    if (sends.chunks < 1 || (first && sends.distances != first->distances)) return std::nullopt;
    if (!to_next(sends) && !to_everyone(sends, shape.ranks)) return std::nullopt;
    chunks = buffer_chunks(algorithm.collective, program, shape.ranks);
    first = std::move(sends);
  }
  const auto count = static_cast<int64_t>(first->distances.size());
  const bool next = to_next(*first);
  if (!next && algorithm.collective != Collective::all_to_all) return std::nullopt;
  return Rounds{.count = count, .bytes = bytes / chunks * first->chunks, .to_everyone = !next};
}

SimulationResult play_rounds(const Rounds& rounds, Network& network, int ranks) {
  SimulationResult result;
  result.messages = rounds.count * ranks;
  result.bytes_sent = rounds.bytes * static_cast<double>(result.messages);
  if (rounds.to_everyone) {
    play_everyone(rounds, network, ranks, result);
  } else {
    play_ring(rounds, network, ranks, result);
  }
  result.first_us = result.time_us;
  result.last_rank = ranks - 1;
  return result;
}

}  // namespace tutti
