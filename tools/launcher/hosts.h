// Hosts of a job, from options, files and batch systems, and the assignment of ranks to them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap/discovery/job_sources.h"

namespace tutti::tool {

struct Host {
  std::string name;
  int slots = 0;          // maximum number of ranks; 0: not given, no limit
  std::string rack = {};  // switches above it (topology/domain.h); empty: not given

  bool operator==(const Host&) const = default;
};

// slot: consecutive ranks fill one host after the other; node: round-robin over hosts.
enum class MapBy { slot, node };

// Parses "a,b:4": names or addresses, optionally with slots. Throws Error(invalid_argument).
std::vector<Host> parse_hosts(const std::vector<std::string>& words);

// The inverse of parse_hosts().
std::string to_text(const std::vector<Host>& hosts);

// Reads a host file of Open MPI (`host slots=4 max_slots=8`), of MPICH (`host:4`), or of names,
// each repeated once per slot; `rack=row2.rack7` may follow; # begins a comment. Slots are not
// given if no line has a number and no name is repeated. Throws Error(invalid_argument) with file
// and line.
std::vector<Host> read_host_file(const std::string& path);

// The allocation of a batch system: hosts and slots, in its order.
struct Allocation {
  std::string source;  // the variable, for people
  std::vector<Host> hosts;
  std::string remote_shell;  // remote shell that needs no keys; empty: unknown
  bool only_here = false;    // the allocation has no other host
};

// Returns nothing outside an allocation and in a step that already has ranks.
std::optional<Allocation> find_allocation(const Environment& environment);

// Returns the ranks of each host, in order; a host gets none if the others have slots for all.
// Without slots ranks are divided equally (they differ by at most one). Throws
// Error(invalid_argument) if there are too many ranks.
std::vector<std::vector<int>> deal_ranks(int ranks, const std::vector<Host>& hosts, MapBy map);

// Total number of slots; 0: not given.
int total_slots(const std::vector<Host>& hosts);

}  // namespace tutti::tool
