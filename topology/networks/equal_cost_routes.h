// Routes with the fewest links through any graph. Among these routes, the search prefers the widest
// arc at each node; remaining ties are broken by the destination, as in tree_pattern(), so that
// routes to different ends spread over parallel links. If the sending end has several equally good
// links, one route starts on each link.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "topology/graph.h"

namespace tutti {

// Not thread-safe: results are cached.
class EqualCostRoutes {
 public:
  // Prepares the search. `ends`: node indices. Routes pass through hosts, GPUs and cores only if
  // Graph::ends_forward(). `graph` and `failed` (by link) must outlive this object.
  EqualCostRoutes(const Graph& graph, const std::vector<int>& ends, const std::vector<bool>& failed)
      : graph_(graph), ends_(ends), failed_(failed) {}

  // Finds the routes between two ends, given by their indices, over which a message is split.
  // Appends their arcs, the same number of arcs for each route, and returns the number of routes; 0
  // if there is none. Returns at most one route if routes may pass through ends.
  int find(int from, int to, std::vector<Arc>& arcs);
  // Clears the cached results. It must be called after `failed` has changed.
  void forget() { known_.clear(); }

 private:
  using Distances = std::vector<int32_t>;  // distance in links, by node
  const Distances& distances_to(int node);
  // Finds the arcs of this node that begin a shortest route to the destination. If their bandwidths
  // differ, finds only the widest.
  void find_nearer(int node, int destination, const Distances& distances);

  const Graph& graph_;
  const std::vector<int>& ends_;
  const std::vector<bool>& failed_;
  std::unordered_map<int, Distances> known_;  // by destination
  std::vector<Arc> nearer_;
};

}  // namespace tutti
