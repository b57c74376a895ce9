// How the ends of a network are connected, and the way from one to another, by arithmetic on their
// numbers: nothing is stored, so a hundred thousand ends are no trouble.
//
// Links are numbered from 0 in the order in which build() connects them; arcs go by those numbers.
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

// Of a network: they are all in memory.
inline constexpr int64_t kMostLinks = int64_t{1} << 23;

class Pattern {
 public:
  virtual ~Pattern() = default;

  virtual int ends() const = 0;
  virtual int links() const = 0;
  // Whether ways lead through ends.
  virtual bool ends_forward() const { return false; }
  // Whether no end has a place of its own, as those of a line have.
  virtual bool ends_are_alike() const { return true; }
  // Connects these nodes of the graph; switches that it adds have names that begin so.
  virtual void build(Graph& graph, std::span<const int> ends, const std::string& prefix) const = 0;
  // Appends the way. Choice 0 is the usual one; others, below choices(), may avoid links of it.
  virtual void route(int from, int to, int choice, std::vector<Arc>& arcs) const = 0;
  virtual int choices() const { return 1; }
};

// Each end to the next one, and the last to the first where it is a ring. Two ends have one link
// between them. Ways go the shorter way round; halfway round, even ends go up and odd ones down.
std::unique_ptr<Pattern> ring_pattern(int ends, bool wraps, LinkSpeed speed);
// Each to each.
std::unique_ptr<Pattern> full_pattern(int ends, LinkSpeed speed);
// All to one switch: a way crosses two links.
std::unique_ptr<Pattern> switch_pattern(int ends, LinkSpeed speed);

// A tree of switches with several roots: XGFT(h; m1 .. mh; w1 .. wh). S. Öhring et al.: On
// generalized fat trees. IPPS 1995. Ways climb to the nearest common ancestor; which of the
// parents is taken depends on the destination (D-mod-k), so that shifts of all ends do not
// collide. E. Zahavi: D-Mod-K Routing Providing Non-Blocking Traffic for Shift Permutations on Real
// Life Fat Trees. 2010.
struct TreeLevel {
  int down = 1;  // m: nodes of the level beneath on each switch
  int up = 1;    // w: switches of this level that each of those nodes is connected to
  LinkSpeed speed;
  std::string name;  // of its switches
};
// The first `ends` of the tree are there; throws Error(invalid_argument) when it has fewer.
std::unique_ptr<Pattern> tree_pattern(int ends, std::vector<TreeLevel> levels);

// Groups of routers that are all connected to each other, and one link between each two groups.
// J. Kim et al.: Technology-Driven, Highly-Scalable Dragonfly Topology. ISCA 2008. Ways take the
// link between the two groups; other choices go through a third one.
struct Dragonfly {
  int groups = 1;
  int routers = 1;  // in a group
  int ends = 1;     // at a router
  int globals = 1;  // links to other groups at a router: routers * globals >= groups - 1
  LinkSpeed end;
  LinkSpeed local;
  LinkSpeed global;
};
// Throws Error(invalid_argument) when there are too few global links.
std::unique_ptr<Pattern> dragonfly_pattern(const Dragonfly& shape);

}  // namespace tutti
