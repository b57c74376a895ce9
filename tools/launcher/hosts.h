// Reads the hosts of a job from options, files and batch systems, and assigns ranks to them.
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
  std::string rack = {};  // switches above the host (topology/domain.h); empty: not given

  bool operator==(const Host&) const = default;
};

// How ranks are assigned. slot: consecutive ranks fill one host after the other; node: round-robin
// over hosts.
enum class MapBy { slot, node };

// Parses "a,b:4": names or addresses, optionally with slots. Throws Error(invalid_argument).
std::vector<Host> parse_hosts(const std::vector<std::string>& words);

// Returns the text that parse_hosts() parses.
std::string to_text(const std::vector<Host>& hosts);

// Reads a host file in the format of Open MPI (`host slots=4 max_slots=8`) or MPICH (`host:4`), or
// a list of names, in which each name is repeated once per slot. Each line may end with
// `rack=row2.rack7`; # begins a comment. If no line has a number and no name is repeated, all slots
// are 0 (not given). Throws Error(invalid_argument) that names the file and the line.
std::vector<Host> read_host_file(const std::string& path);

// The allocation of a batch system: hosts and slots, in the order of the batch system.
struct Allocation {
  std::string source;  // name of the variable that defines it, for messages
  std::vector<Host> hosts;
  std::string remote_shell;  // remote shell that needs no keys in this batch system; empty: unknown
  bool only_here = false;    // true if the allocation has no other host than this one
};

// Returns the allocation of this process. Returns nothing outside an allocation, and in a Slurm
// step whose processes are already ranks.
std::optional<Allocation> find_allocation(const Environment& environment);

// Returns the ranks of each host, in the order of the hosts. If slots are given, hosts without a
// rank are possible. Otherwise each host gets at least one rank, and the numbers of ranks differ by
// at most one. Throws Error(invalid_argument) if there are more ranks than slots or, without slots,
// fewer ranks than hosts.
std::vector<std::vector<int>> deal_ranks(int ranks, const std::vector<Host>& hosts, MapBy map);

// Returns the total number of slots; 0: not given.
int total_slots(const std::vector<Host>& hosts);

}  // namespace tutti::tool
