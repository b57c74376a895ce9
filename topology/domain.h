// The location of a rank on its host, and the ranks of each host, as plain values without hwloc.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tutti {

// The location of one rank. Indices refer to one HostTopology, so they can be compared only among
// ranks of one host. -1: unknown, or the rank's hardware threads span several.
struct Domain {
  int numa_node = -1;
  int cache = -1;  // last-level cache (usually L3)

  bool operator==(const Domain&) const = default;
};

// Formats as "numa:0,cache:2", without unknown parts.
std::string to_text(const Domain& domain);
// Parses the result of to_text(). Throws Error(invalid_argument) for any other text.
Domain parse_domain(const std::string& text);

// Checks a rack path and returns it unchanged. A rack path lists the switches above a host, the
// outermost first, separated by dots, as in "row2.rack7". An empty path means unknown. Throws
// Error(invalid_argument) for malformed input.
std::string parse_rack(const std::string& text);
// Builds the rack path from the values of Slurm's variables, as in SLURM_TOPOLOGY_ADDR=s0.s4.node1
// and SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node.
std::string rack_of_slurm(const std::string& address, const std::string& pattern);

struct Place {
  std::string host;  // equal for ranks of one host
  Domain domain;
  std::string rack = {};  // as returned by parse_rack()
};

// The assignment of ranks to hosts. Hosts are numbered in the order of their first ranks.
class Hosts {
 public:
  Hosts() = default;  // makes an assignment without ranks
  static Hosts of(std::span<const Place> ranks);
  // Assigns `each` consecutive ranks to each host; the last host may have fewer.
  static Hosts equal(int ranks, int each);

  int count() const { return static_cast<int>(ranks_on_.size()); }
  int ranks() const { return static_cast<int>(spots_.size()); }
  int host_of(int rank) const { return spots_[static_cast<size_t>(rank)].host; }
  // Returns the rank's index among the ranks of its host, from 0.
  int position_of(int rank) const { return spots_[static_cast<size_t>(rank)].position; }
  int ranks_on(int host) const { return ranks_on_[static_cast<size_t>(host)]; }
  int largest() const { return largest_; }  // maximum number of ranks on a host
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
