// Routes with the fewest links through any graph, preferring the widest arc at each node. Remaining
// ties are broken by the destination, as in tree_pattern(), so that routes to different ends spread
// over parallel links. An end with several equally good links of its own uses all of them at once.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "topology/graph.h"

namespace tutti {

// Not thread-safe: results are cached.
class EqualCostRoutes {
 public:
  // `ends`: node indices. Routes pass through hosts, GPUs and cores only if these forward. `graph`
  // and `failed` (by link) must outlive this object.
  EqualCostRoutes(const Graph& graph, const std::vector<int>& ends, const std::vector<bool>& failed)
      : graph_(graph), ends_(ends), failed_(failed) {}

  // Finds routes from one end to another, by their indices. Appends the routes that a message uses
  // at once, each with the same number of arcs, and returns their count; 0 if there is none.
  // Returns at most one route if ends forward.
  int find(int from, int to, std::vector<Arc>& arcs);
  // Must be called after `failed` has changed.
  void forget() { known_.clear(); }

 private:
  using Distances = std::vector<int32_t>;  // in links, by node
  const Distances& distances_to(int node);
  // Finds the arcs of this node on shortest routes to the destination that are as wide as any.
  void find_nearer(int node, int destination, const Distances& distances);

  const Graph& graph_;
  const std::vector<int>& ends_;
  const std::vector<bool>& failed_;
  std::unordered_map<int, Distances> known_;  // by destination
  std::vector<Arc> nearer_;
};

}  // namespace tutti
