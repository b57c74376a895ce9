// Which hosts a job runs on, as people and batch systems write them down, and which ranks each
// gets.
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
  int slots = 0;          // the most ranks that it takes; 0: not said, any number
  std::string rack = {};  // the switches above it (topology/domain.h); empty: not said

  bool operator==(const Host&) const = default;
};

// Blocks of neighbouring ranks on each host, or one rank a host in turn.
enum class MapBy { slot, node };

// "a,b:4": names or addresses, some with their slots. Throws Error(invalid_argument).
std::vector<Host> parse_hosts(const std::vector<std::string>& words);

// The same, as one text.
std::string to_text(const std::vector<Host>& hosts);

// A file of Open MPI's (`host slots=4 max_slots=8`), of MPICH's (`host:4`), or of names, each of
// which may be there once for each slot; `rack=row2.rack7` may follow; # begins a comment. Where no
// line tells a number and no name is there twice, slots are not said. Throws
// Error(invalid_argument) with file and line.
std::vector<Host> read_host_file(const std::string& path);

// What a batch system has given to this job: hosts and slots in its order.
struct Allocation {
  std::string source;  // the variable, for people
  std::vector<Host> hosts;
  std::string remote_shell;  // that needs no keys; empty: none is known
  bool only_here = false;    // this host is all there is
};

// Nothing outside of one, and in a step that has ranks already.
std::optional<Allocation> find_allocation(const Environment& environment);

// The ranks of each host, in its order; none where others have room for all. Without slots hosts
// get as many ranks as each other, or one more. Throws Error(invalid_argument) when there are too
// many.
std::vector<std::vector<int>> deal_ranks(int ranks, const std::vector<Host>& hosts, MapBy map);

// Of all; 0: not said.
int total_slots(const std::vector<Host>& hosts);

}  // namespace tutti::tool
