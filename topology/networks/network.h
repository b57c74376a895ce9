// A cluster as ranks see it: a graph, where on it ranks are, and the ways between them. Made from a
// description or a file (load_network.h), or from any graph.
//
// Ways in networks of a known structure (patterns.h) are computed from the ranks' numbers;
// elsewhere, and where links have failed, they are looked for in the graph (equal_cost_routes.h).
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

// Patterns inside each other, the innermost first. Ranks are numbered by place: with stages of 8
// and 4 ends rank 8 * i + j is end j of inner group i, and it is an end of one inner pattern (with
// the ranks 8 * i + ...) and of one outer one (with the ranks 8 * ... + j).
struct Structure {
  std::vector<std::unique_ptr<Pattern>> stages;
  bool stage_is_inside_host = false;  // the innermost
  // Outermost, where there is one, and common to all ranks: each has an end of its own, in their
  // order, or so many of a host have one together.
  std::unique_ptr<Pattern> fabric;
  int ranks_per_end = 1;
  LinkSpeed to_end;  // from a rank to an end that several have together

  int ranks() const;
};

// Not for several threads at a time. Links may fail or be slow; the graph stays as it was.
class Network {
 public:
  explicit Network(Structure structure);
  // Ranks are at graph.rank_nodes(). Throws Error(invalid_argument) when there are none.
  explicit Network(Graph graph);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Graph& graph() const { return graph_; }
  int ranks() const { return static_cast<int>(nodes_.size()); }
  int node_of(int rank) const { return nodes_[static_cast<size_t>(rank)]; }
  // Of the first so many: host, and for networks inside each other up to two levels in it.
  std::vector<Place> places(int ranks) const;
  // The size of the innermost groups of consecutive ranks that are all alike; 1 where there are
  // none, or only one, or where the groups or the ranks in them differ.
  int alike_group_size() const;

  double GBps(Arc arc) const { return GBps_[static_cast<size_t>(arc / 2)]; }
  double latency_us(Arc arc) const { return graph_.link_of(arc).latency_us; }
  std::string name(Arc arc) const;  // "leaf3 -> spine0"

  // Appends the ways from one rank to another, of equally many arcs each, and returns how many they
  // are: several where the rank's node has several links of its own and a message is split evenly
  // over them; 0 where failed links have left none.
  int route(int from, int to, std::vector<Arc>& arcs);

  // Latency of the slowest of so many ways, of equally many arcs each.
  double slowest_us(std::span<const Arc> arcs, int ways) const;

  // "leaf0-spine1": the links between two nodes; "link7": by number; "spine1": all of a node's.
  // Throws Error(invalid_argument) that names what is near.
  std::vector<int> links_named(const std::string& name) const;
  void fail(int link);
  // Its bandwidth is divided by `factor`.
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

  Structure structure_;  // without stages where there is none
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
