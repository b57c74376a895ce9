// Ways over the fewest links through a graph of any form, at each node over the widest that are as
// short. Which of those that are left depends on the destination, as in tree_pattern(): ways to
// different ends spread over parallel links. An end with several links of its own, all of them as
// good, sends over each at once.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "topology/graph.h"

namespace tutti {

// Not for several threads at a time: what was found is kept.
class EqualCostRoutes {
 public:
  // `ends`: nodes. Ways lead through hosts, GPUs and cores only where these forward. `graph` and
  // `failed` (by link) must live as long as this.
  EqualCostRoutes(const Graph& graph, const std::vector<int>& ends, const std::vector<bool>& failed)
      : graph_(graph), ends_(ends), failed_(failed) {}

  // From one end to another, by their numbers. Appends the ways that a message takes at once, which
  // have equally many arcs, and returns how many they are; 0 where there is none. Only one where
  // ends forward.
  int find(int from, int to, std::vector<Arc>& arcs);
  // What failed has changed.
  void forget() { known_.clear(); }

 private:
  using Distances = std::vector<int32_t>;  // by node, in links
  const Distances& distances_to(int node);
  // The arcs from this node that lead to the destination, over the fewest links and as wide as any.
  void find_nearer(int node, int destination, const Distances& distances);

  const Graph& graph_;
  const std::vector<int>& ends_;
  const std::vector<bool>& failed_;
  std::unordered_map<int, Distances> known_;  // by destination
  std::vector<Arc> nearer_;
};

}  // namespace tutti
