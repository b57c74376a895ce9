#include "topology/networks/equal_cost_routes.h"

#include <algorithm>

#include "topology/route.h"

namespace tutti {

namespace {

constexpr int32_t kFar = INT32_MAX;
// Maximum number of distances cached, over all destinations.
constexpr size_t kMostKept = size_t{128} << 20;
// Maximum number of a host's cards over which a message is split.
constexpr size_t kMostWays = 16;

}  // namespace

const EqualCostRoutes::Distances& EqualCostRoutes::distances_to(int destination) {
  const auto found = known_.find(destination);
  if (found != known_.end()) return found->second;
  if ((known_.size() + 1) * graph_.nodes().size() > kMostKept) known_.clear();
  Distances& distances = known_[destination];
  distances.assign(graph_.nodes().size(), kFar);
  distances[static_cast<size_t>(destination)] = 0;
  std::vector<int> queue = {destination};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int node = queue[i];
    if (node != destination && !forwards(graph_, node)) continue;
    for (const Arc arc : graph_.arcs_from(node)) {
      int32_t& there = distances[static_cast<size_t>(graph_.head(arc))];
      if (failed_[static_cast<size_t>(arc / 2)] || there != kFar) continue;
      there = distances[static_cast<size_t>(node)] + 1;
      queue.push_back(graph_.head(arc));
    }
  }
  return distances;
}

void EqualCostRoutes::find_nearer(int node, int destination, const Distances& distances) {
  const auto distance = [&](int of) { return distances[static_cast<size_t>(of)]; };
  nearer_.clear();
  double widest = 0;
  for (const Arc arc : graph_.arcs_from(node)) {
    const int next = graph_.head(arc);
    const bool leads = distance(next) == distance(node) - 1 &&
                       !failed_[static_cast<size_t>(arc / 2)] &&
                       (next == destination || forwards(graph_, next));
    const double GBps = graph_.link_of(arc).GBps;
    if (!leads || GBps < widest) continue;
    if (GBps > widest) nearer_.clear();
    widest = GBps;
    nearer_.push_back(arc);
  }
}

int EqualCostRoutes::find(int from, int to, std::vector<Arc>& arcs) {
  const int destination = ends_[static_cast<size_t>(to)];
  const int start = ends_[static_cast<size_t>(from)];
  if (start == destination) return 1;
  const Distances& distances = distances_to(destination);
  if (distances[static_cast<size_t>(start)] == kFar) return 0;
  int ways = 1;
  for (int way = 0; way < ways; ++way) {
    auto digits = static_cast<size_t>(to);
    for (int node = start; node != destination; node = graph_.head(arcs.back())) {
      find_nearer(node, destination, distances);
      if (node == start && !forwards(graph_, start)) {
        ways = static_cast<int>(std::min(nearer_.size(), kMostWays));
      }
      arcs.push_back(nearer_[(digits + static_cast<size_t>(way)) % nearer_.size()]);
      digits /= nearer_.size();
    }
  }
  return ways;
}

}  // namespace tutti
