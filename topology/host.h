// What hwloc and sysfs say of one host, as plain values, and where its ranks are bound by default.
//
// Cores are in hwloc's logical order (package, NUMA node, shared cache): neighbours in the list are
// neighbours in the machine. "Allowed" is what cgroups and this process's affinity leave of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "topology/domain.h"

namespace tutti {

struct Core {
  int package = 0;               // index into HostTopology::packages
  int numa_node = 0;             // index into HostTopology::numa_nodes; the first, if several
  std::vector<int> pus;          // hardware threads, by the operating system's numbers
  std::vector<int> allowed_pus;  // those of them that this process may use
};

struct Package {
  std::string model;       // "AMD EPYC 9654"; empty when unknown
  std::vector<int> cores;  // indices into HostTopology::cores
};

struct NumaNode {
  int os_index = 0;
  uint64_t bytes = 0;  // of memory
  std::vector<int> cores;
};

enum class CacheKind { unified, data, instruction };

struct Cache {
  int level = 1;
  CacheKind kind = CacheKind::unified;
  uint64_t bytes = 0;
  std::vector<int> cores;  // that share it
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
  // Cores of which at least one hardware thread is allowed; at least 1 on any host.
  int allowed_cores() const;
};

// This host as it is now. Throws Error(system) when hwloc cannot read it.
HostTopology load_host();
// A host that `lstopo host.xml` described; the file says what is allowed.
HostTopology load_host_xml(const std::string& path);
// A host that does not exist: "package:2 numa:1 l3:2 core:4 pu:2" (hwloc's synthetic description).
HostTopology load_host_synthetic(const std::string& description);
// This host, or what the setting TUTTI_TOPOLOGY says in its stead; read once in a process.
const HostTopology& this_host();

// The hardware threads (operating system's numbers) to which each of `local_ranks` ranks is bound:
// a contiguous, disjoint share of the allowed cores, as equal as possible, so that ranks spread
// over packages, NUMA nodes and shared caches in that order. More ranks than allowed cores: no
// binding, every set is empty. A pure function.
std::vector<std::vector<int>> bind_local_ranks(const HostTopology& host, int local_ranks);

// The domain of each rank, `bound` to these hardware threads; one that is bound to none, or to some
// that the host does not have, is nowhere in particular. A pure function.
std::vector<Domain> domains_of(const HostTopology& host,
                               const std::vector<std::vector<int>>& bound);

// For people; several lines, each ends with a newline.
std::string summary(const HostTopology& host);
Json to_json(const HostTopology& host);

}  // namespace tutti
