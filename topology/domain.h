// Where on its host a rank runs, and which ranks are near each other. Plain values: no hwloc.
#pragma once

#include <span>
#include <string>
#include <vector>

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

// Switches above a host, the outermost first, with dots between them: "row2.rack7". Empty: not
// known. What people write, without what cannot be. Throws Error(invalid_argument).
std::string parse_rack(const std::string& text);
// Slurm's, as in SLURM_TOPOLOGY_ADDR=s0.s4.node1 and
// SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node.
std::string rack_of_slurm(const std::string& address, const std::string& pattern);

struct Place {
  std::string host;  // equal for ranks of one host
  Domain domain;
  std::string rack = {};  // parse_rack()
};

// Which ranks share a host, wherever they are placed. Hosts are numbered in the order of their
// first ranks.
class Hosts {
 public:
  Hosts() = default;  // of no ranks
  static Hosts of(std::span<const Place> ranks);
  // Consecutive ranks, `each` on a host; the last one may have fewer.
  static Hosts equal(int ranks, int each);

  int count() const { return static_cast<int>(ranks_on_.size()); }
  int ranks() const { return static_cast<int>(spots_.size()); }
  int host_of(int rank) const { return spots_[static_cast<size_t>(rank)].host; }
  // Among the ranks of its host, from 0.
  int position_of(int rank) const { return spots_[static_cast<size_t>(rank)].position; }
  int ranks_on(int host) const { return ranks_on_[static_cast<size_t>(host)]; }
  int largest() const { return largest_; }  // ranks on the host that has most of them
  bool near(int a, int b) const { return host_of(a) == host_of(b); }

  bool operator==(const Hosts&) const = default;

 private:
  struct Spot {
    int host;
    int position;
    bool operator==(const Spot&) const = default;
  };
  void add(int host);
  std::vector<Spot> spots_;    // by rank
  std::vector<int> ranks_on_;  // by host
  int largest_ = 0;
};

}  // namespace tutti
