// The hardware of one host as plain values, from hwloc and sysfs, and the default binding of its
// ranks.
//
// Cores are in hwloc's logical order (package, NUMA node, shared cache): neighbours in the list are
// neighbours in the machine. "Allowed" means usable under cgroups and this process's affinity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "topology/domain.h"

namespace tutti {

struct Core {
  int package = 0;       // index into HostTopology::packages
  int numa_node = 0;     // index into HostTopology::numa_nodes; if the core has several, the first
  std::vector<int> pus;  // hardware threads, by their operating system numbers
  std::vector<int> allowed_pus;  // the subset that this process may use
};

struct Package {
  std::string model;       // "AMD EPYC 9654"; empty when unknown
  std::vector<int> cores;  // indices into HostTopology::cores
};

struct NumaNode {
  int os_index = 0;
  uint64_t bytes = 0;  // bytes of memory
  std::vector<int> cores;
};

enum class CacheKind { unified, data, instruction };

struct Cache {
  int level = 1;
  CacheKind kind = CacheKind::unified;
  uint64_t bytes = 0;
  std::vector<int> cores;  // the cores that share it
};

struct HostTopology {
  std::string hostname;
  uint64_t memory_bytes = 0;
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  std::vector<Cache> caches;  // by level, then in the order of cores
  std::vector<Core> cores;

  int pus() const;
  int allowed_pus() const;
  // Returns the number of cores with at least one allowed hardware thread.
  int allowed_cores() const;
};

// Reads this host's present state. Throws Error(system) if hwloc cannot read it.
HostTopology load_host();
// Reads a host from a file that `lstopo host.xml` wrote. The allowed threads are those that the
// file states.
HostTopology load_host_xml(const std::string& path);
// Builds a host from hwloc's synthetic description: "package:2 numa:1 l3:2 core:4 pu:2".
HostTopology load_host_synthetic(const std::string& description);
// Returns this host, or the one that the setting TUTTI_TOPOLOGY names. It is read once per process.
const HostTopology& this_host();

// Returns, for each of `local_ranks` ranks, the hardware threads (operating system numbers) that it
// should be bound to. Each rank gets a contiguous, disjoint share of the allowed cores; the shares
// are as equal as possible, and spread over packages, then NUMA nodes, then shared caches. With
// more ranks than allowed cores every set is empty: no rank is bound. A pure function.
std::vector<std::vector<int>> bind_local_ranks(const HostTopology& host, int local_ranks);

// Returns the domain of each rank, given the hardware threads that it is bound to. Its NUMA node or
// cache is unknown (-1) if the rank is unbound, or bound to threads that the host lacks or that
// belong to several nodes or caches. A pure function.
std::vector<Domain> domains_of(const HostTopology& host,
                               const std::vector<std::vector<int>>& bound);

// Returns several lines for people, each with a newline.
std::string summary(const HostTopology& host);
Json to_json(const HostTopology& host);

}  // namespace tutti
