// A cluster as ranks see it: a graph, the nodes of the ranks, and routes between them. It is built
// from a description or a file (load_network.h), or from any graph.
//
// Where the network has a known structure (patterns.h), routes are computed from the indices of the
// ranks. In other graphs, and once links have failed, routes are searched (equal_cost_routes.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topology/domain.h"
#include "topology/graph.h"
#include "topology/networks/equal_cost_routes.h"
#include "topology/networks/patterns.h"

namespace tutti {

// Nested patterns, the innermost first. Each rank is an end of one pattern per stage. With stages
// of 8 and 4 ends, rank 10 is end 2 of the inner pattern 1 (ranks 8 to 15), and end 1 of the outer
// pattern 2 (ranks 2, 10, 18 and 26).
struct Structure {
  std::vector<std::unique_ptr<Pattern>> stages;
  bool stage_is_inside_host = false;  // applies to the innermost stage
  // Optional outermost pattern, which connects all ranks. It has one end per rank, in rank order,
  // or one end per `ranks_per_end` ranks of a host.
  std::unique_ptr<Pattern> fabric;
  int ranks_per_end = 1;
  LinkSpeed to_end;  // link from a rank to an end that several ranks share

  int ranks() const;
};

// Not thread-safe. Links may fail or slow down; the graph stays unchanged.
class Network {
 public:
  explicit Network(Structure structure);
  // Uses the nodes of graph.rank_nodes() as ranks. Throws Error(invalid_argument) if there are
  // none.
  explicit Network(Graph graph);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Graph& graph() const { return graph_; }
  int ranks() const { return static_cast<int>(nodes_.size()); }
  int node_of(int rank) const { return nodes_[static_cast<size_t>(rank)]; }
  // Returns the places of the first `ranks` ranks: the host and, for nested networks, up to two
  // levels inside it.
  std::vector<Place> places(int ranks) const;
  // Returns the size of the innermost groups of consecutive ranks, if there are several groups, all
  // of one size, and all ranks in them are equivalent; otherwise 1.
  int alike_group_size() const;

  double GBps(Arc arc) const { return GBps_[static_cast<size_t>(arc / 2)]; }
  double latency_us(Arc arc) const { return graph_.link_of(arc).latency_us; }
  std::string name(Arc arc) const;  // formats as "leaf3 -> spine0"

  // Appends the arcs of the routes from one rank to another, the same number of arcs for each
  // route, and returns the number of routes. There are several if the sender's node has several
  // equally good links; a message is then split evenly over the routes. Returns 0 if failed links
  // have left no route.
  int route(int from, int to, std::vector<Arc>& arcs);

  // Returns the latency of the slowest of `ways` routes. `arcs` holds the arcs of the first route,
  // then those of the second, and so on; all routes have the same number of arcs.
  double slowest_us(std::span<const Arc> arcs, int ways) const;

  // Returns the links that `name` means: "leaf0-spine1", the links between two nodes; "link7", a
  // link by index; "spine1", all links of a node. Throws Error(invalid_argument) that explains
  // these forms if there is no such link or node.
  std::vector<int> links_named(const std::string& name) const;
  void fail(int link);
  // Divides the link's bandwidth by `factor`.
  void slow(int link, double factor) { GBps_[static_cast<size_t>(link)] /= factor; }

 private:
  struct Stage {
    int stride;
    int first_link;
  };

  void build();
  void add_ranks();
  void add_stage(size_t stage);
  void add_fabric();
  bool ends_forward() const;
  void route_by_structure(int from, int to, int choice, std::vector<Arc>& arcs) const;
  bool intact(std::span<const Arc> arcs) const;

  Structure structure_;  // has no stages if the structure is unknown
  std::vector<Stage> stages_;
  int first_fabric_link_ = 0;
  Graph graph_;
  std::vector<int> nodes_;    // by rank
  std::vector<double> GBps_;  // by link
  std::vector<bool> failed_;
  bool any_failed_ = false;
  std::unique_ptr<EqualCostRoutes> routes_;
};

}  // namespace tutti
