#include "topology/host.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>

#include "base/file_text.h"
#include "base/host_name.h"
#include "base/settings.h"
#include "base/text.h"
#include "topology/hwloc_topology.h"

namespace tutti {

namespace {

std::vector<int> members(hwloc_const_bitmap_t set) {
  std::vector<int> indices;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) indices.push_back(i);
  return indices;
}

// Returns the logical index (the index within its type) of the first object of `type` that shares
// hardware threads with `object`; 0 if there is none.
int index_above(const HwlocTopology& topology, hwloc_obj_t object, hwloc_obj_type_t type) {
  hwloc_obj_t found =
      hwloc_get_next_obj_covering_cpuset_by_type(topology.get(), object->cpuset, type, nullptr);
  return found != nullptr ? static_cast<int>(found->logical_index) : 0;
}

std::vector<int> cores_of(const std::vector<hwloc_obj_t>& cores, hwloc_obj_t object) {
  std::vector<int> indices;
  for (size_t i = 0; i < cores.size(); ++i) {
    if (hwloc_bitmap_intersects(cores[i]->cpuset, object->cpuset)) {
      indices.push_back(static_cast<int>(i));
    }
  }
  return indices;
}

CacheKind kind_of(hwloc_obj_t cache) {
  switch (cache->attr->cache.type) {
    case HWLOC_OBJ_CACHE_DATA:
      return CacheKind::data;
    case HWLOC_OBJ_CACHE_INSTRUCTION:
      return CacheKind::instruction;
    default:
      return CacheKind::unified;
  }
}

std::vector<Cache> read_caches(const HwlocTopology& topology,
                               const std::vector<hwloc_obj_t>& cores) {
  std::vector<Cache> caches;
  const int depth = hwloc_topology_get_depth(topology.get());
  for (int level = 0; level < depth; ++level) {
    if (!hwloc_obj_type_is_cache(hwloc_get_depth_type(topology.get(), level))) continue;
    hwloc_obj_t object = nullptr;
    while ((object = hwloc_get_next_obj_by_depth(topology.get(), level, object)) != nullptr) {
      caches.push_back({static_cast<int>(object->attr->cache.depth), kind_of(object),
                        object->attr->cache.size, cores_of(cores, object)});
    }
  }
  std::ranges::stable_sort(caches, {},
                           [](const Cache& cache) { return std::tuple(cache.level, cache.kind); });
  return caches;
}

HostTopology read(const HwlocTopology& topology) {
  HostTopology host;
  // Some virtual machines report no cores; then every hardware thread counts as a core.
  std::vector<hwloc_obj_t> cores = objects(topology, HWLOC_OBJ_CORE);
  if (cores.empty()) cores = objects(topology, HWLOC_OBJ_PU);
  const Bitmap allowed = allowed_set(topology);
  const Bitmap common(hwloc_bitmap_alloc());
  for (hwloc_obj_t core : cores) {
    hwloc_bitmap_and(common.get(), core->cpuset, allowed.get());
    host.cores.push_back({index_above(topology, core, HWLOC_OBJ_PACKAGE),
                          index_above(topology, core, HWLOC_OBJ_NUMANODE), members(core->cpuset),
                          members(common.get())});
  }
  for (hwloc_obj_t package : objects(topology, HWLOC_OBJ_PACKAGE)) {
    const char* model = hwloc_obj_get_info_by_name(package, "CPUModel");
    host.packages.push_back({model != nullptr ? model : "", cores_of(cores, package)});
  }
  for (hwloc_obj_t node : objects(topology, HWLOC_OBJ_NUMANODE)) {
    host.numa_nodes.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory,
                               cores_of(cores, node)});
  }
  host.caches = read_caches(topology, cores);
  const hwloc_obj_t root = hwloc_get_root_obj(topology.get());
  // hwloc misses memory that was hot-plugged into this host, and all memory if /sys is hidden.
  const bool is_this_host = hwloc_topology_is_thissystem(topology.get()) != 0;
  const long pages = is_this_host ? ::sysconf(_SC_PHYS_PAGES) : -1;
  host.memory_bytes =
      pages < 0 ? root->total_memory
                : static_cast<uint64_t>(pages) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const char* name = hwloc_obj_get_info_by_name(root, "HostName");
  host.hostname = name != nullptr ? name : "";
  return host;
}

// Returns the domain of each hardware thread. Cache indices count within the last level.
std::map<int, Domain> domains_by_pu(const HostTopology& host) {
  int last_level = 0;
  for (const Cache& cache : host.caches) last_level = std::max(last_level, cache.level);
  std::vector<int> cache_of(host.cores.size(), -1);
  int caches = 0;
  for (const Cache& cache : host.caches) {
    if (cache.level != last_level || cache.kind == CacheKind::instruction) continue;
    for (const int core : cache.cores) cache_of[static_cast<size_t>(core)] = caches;
    ++caches;
  }
  std::map<int, Domain> domains;
  for (size_t i = 0; i < host.cores.size(); ++i) {
    const Core& core = host.cores[i];
    const int node = host.numa_nodes.empty() ? -1 : core.numa_node;
    for (const int pu : core.pus) domains[pu] = {.numa_node = node, .cache = cache_of[i]};
  }
  return domains;
}

}  // namespace

int HostTopology::pus() const {
  int count = 0;
  for (const Core& core : cores) count += static_cast<int>(core.pus.size());
  return count;
}

int HostTopology::allowed_pus() const {
  int count = 0;
  for (const Core& core : cores) count += static_cast<int>(core.allowed_pus.size());
  return count;
}

int HostTopology::allowed_cores() const {
  return static_cast<int>(
      std::ranges::count_if(cores, [](const Core& core) { return !core.allowed_pus.empty(); }));
}

HostTopology load_host() {
  HostTopology host = read(open_this_host(Devices::skip));
  host.hostname = host_name();
  return host;
}

HostTopology load_host_xml(const std::string& path) {
  return read(open_hwloc_xml(file_text(path, FileKind::graph), path, Devices::skip));
}

HostTopology load_host_synthetic(const std::string& description) {
  return read(open_synthetic_host(description));
}

const HostTopology& this_host() {
  static const HostTopology host = [] {
    constexpr std::string_view kSynthetic = "synthetic:";
    const std::string wanted = settings().get_string("TUTTI_TOPOLOGY");
    if (wanted.empty()) return load_host();
    return wanted.starts_with(kSynthetic) ? load_host_synthetic(wanted.substr(kSynthetic.size()))
                                          : load_host_xml(wanted);
  }();
  return host;
}

std::vector<std::vector<int>> bind_local_ranks(const HostTopology& host, int local_ranks) {
  std::vector<std::vector<int>> bound(static_cast<size_t>(std::max(local_ranks, 0)));
  const int cores = host.allowed_cores();
  if (local_ranks > cores) return bound;
  int64_t allowed_index = 0;
  for (const Core& core : host.cores) {
    if (core.allowed_pus.empty()) continue;
    // Rank r gets the cores from r * cores / ranks to (r + 1) * cores / ranks, exclusive; both
    // bounds are rounded up.
    std::vector<int>& rank = bound[static_cast<size_t>(allowed_index * local_ranks / cores)];
    rank.insert(rank.end(), core.allowed_pus.begin(), core.allowed_pus.end());
    ++allowed_index;
  }
  return bound;
}

std::vector<Domain> domains_of(const HostTopology& host,
                               const std::vector<std::vector<int>>& bound) {
  const std::map<int, Domain> by_pu = domains_by_pu(host);
  std::vector<Domain> domains;
  for (const std::vector<int>& rank : bound) {
    const auto domain_of = [&](int pu) {
      const auto found = by_pu.find(pu);
      return found == by_pu.end() ? Domain{} : found->second;
    };
    Domain common = rank.empty() ? Domain{} : domain_of(rank.front());
    for (const int pu : rank) {
      const Domain domain = domain_of(pu);
      if (domain.numa_node != common.numa_node) common.numa_node = -1;
      if (domain.cache != common.cache) common.cache = -1;
    }
    domains.push_back(common);
  }
  return domains;
}

}  // namespace tutti
