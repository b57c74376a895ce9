// Where on its host a rank runs, and which ranks are near each other. Plain values: no hwloc.
#pragma once

#include <span>
#include <string>

namespace tutti {

// Of one rank. Indices are those of one HostTopology, so they mean something among the ranks of one
// host only; -1: not known, or the rank's hardware threads are in several.
struct Domain {
  int numa_node = -1;
  int cache = -1;  // of the last level (L3, where there is one)

  bool operator==(const Domain&) const = default;
};

// "numa:0,cache:2", without what is not known.
std::string to_text(const Domain& domain);
// Throws Error(invalid_argument).
Domain parse_domain(const std::string& text);

struct Place {
  std::string host;  // equal for ranks of one host
  Domain domain;
};

// Cuts ranks into groups of so many, in their order, by host; those of a single host by last-level
// cache or, where that makes no groups, by NUMA node. Groups are consecutive ranks in one place,
// equally many in each.
//
//   hosts   a a b b      2        caches  0 0 1 1    2        caches  0 0 0 1    the host: 4
//           a b b b      1                0 1 2 3    by NUMA node      (none known)         4
int group_of(std::span<const Place> ranks);

}  // namespace tutti
