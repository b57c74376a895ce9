// Patterns of links between the ends of a network (hosts, GPUs or cards), and routes that are
// computed from the indices of two ends. Routes are not stored, so a hundred thousand ends are
// cheap.
//
// Links are numbered from 0 in the order in which build() connects them; arcs use those numbers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topology/graph.h"

namespace tutti {

struct LinkSpeed {
  double GBps = 50;
  double latency_us = 0.5;
  LinkClass kind = LinkClass::network;
};

// Maximum number of links in a network: all are kept in memory.
inline constexpr int64_t kMostLinks = int64_t{1} << 23;

class Pattern {
 public:
  virtual ~Pattern() = default;

  virtual int ends() const = 0;
  virtual int links() const = 0;
  // Returns true if routes pass through ends.
  virtual bool ends_forward() const { return false; }
  // Returns true if all ends are equivalent. The ends of a ring are; the ends of a line are not.
  virtual bool ends_are_alike() const { return true; }
  // Connects these nodes of the graph; switches that it adds have names that begin with `prefix`.
  virtual void build(Graph& graph, std::span<const int> ends, const std::string& prefix) const = 0;
  // Appends the arcs of a route. `choice` is below choices(): 0 selects the default route, other
  // values select routes that may avoid its links.
  virtual void route(int from, int to, int choice, std::vector<Arc>& arcs) const = 0;
  virtual int choices() const { return 1; }
};

// Returns a ring, or a line if it does not wrap: each end is connected to the next and, if it
// wraps, the last to the first. Two ends have one link between them. Routes take the shorter way
// round; to the opposite end, even ends go up and odd ones down.
std::unique_ptr<Pattern> ring_pattern(int ends, bool wraps, LinkSpeed speed);
// Connects each end to each other one.
std::unique_ptr<Pattern> full_pattern(int ends, LinkSpeed speed);
// Connects all ends to one switch: a route crosses two links.
std::unique_ptr<Pattern> switch_pattern(int ends, LinkSpeed speed);

// One level of a tree of switches with several roots: XGFT(h; m1 .. mh; w1 .. wh). S. Öhring et
// al.: On generalized fat trees. IPPS 1995. Routes climb to the nearest common ancestor; the
// destination selects the parent (D-mod-k), so that shifts of all ends do not collide. E. Zahavi:
// D-Mod-K Routing Providing Non-Blocking Traffic for Shift Permutations on Real Life Fat Trees.
// 2010.
struct TreeLevel {
  int down = 1;  // m: nodes of the level below that each switch connects
  int up = 1;    // w: switches of this level that each node of the level below connects to
  LinkSpeed speed;
  std::string name;  // name prefix of its switches
};
// Builds a tree for `ends` ends. Throws Error(invalid_argument) if the levels have too little room.
std::unique_ptr<Pattern> tree_pattern(int ends, std::vector<TreeLevel> levels);

// Groups of routers: all routers of a group are linked to each other, and each two groups are
// connected by one link. The default route takes the link between the two groups; other choices
// pass through a third group. J. Kim et al.: Technology-Driven, Highly-Scalable Dragonfly Topology.
// ISCA 2008.
struct Dragonfly {
  int groups = 1;
  int routers = 1;  // routers per group
  int ends = 1;     // ends per router
  int globals = 1;  // links per router to other groups; routers * globals >= groups - 1
  LinkSpeed end;
  LinkSpeed local;
  LinkSpeed global;
};
// Throws Error(invalid_argument) if there are too few global links.
std::unique_ptr<Pattern> dragonfly_pattern(const Dragonfly& shape);

}  // namespace tutti
