// Presents a host: text for people, JSON for programs.
#include <map>
#include <sstream>
#include <tuple>

#include "base/json.h"
#include "base/text.h"
#include "topology/host.h"

namespace tutti {

namespace {

const char* name(CacheKind kind) {
  switch (kind) {
    case CacheKind::data:
      return "data";
    case CacheKind::instruction:
      return "instruction";
    case CacheKind::unified:
      break;
  }
  return "unified";
}

std::string label(const Cache& cache) {
  const char* suffix = cache.kind == CacheKind::data          ? "d"
                       : cache.kind == CacheKind::instruction ? "i"
                                                              : "";
  return cat("L", cache.level, suffix);
}

// Formats a number of things: counted(2, "core") returns "2 cores".
std::string counted(size_t count, const std::string& thing) {
  return cat(count, " ", thing, count == 1 ? "" : "s");
}

// Describes equal caches on one line: "L3    2 x 32 MiB, each shared by 4 cores".
void describe_caches(const HostTopology& host, std::ostream& out) {
  std::map<std::tuple<int, CacheKind, uint64_t, size_t>, int> alike;
  for (const Cache& cache : host.caches) {
    ++alike[{cache.level, cache.kind, cache.bytes, cache.cores.size()}];
  }
  for (const auto& [what, count] : alike) {
    const auto& [level, kind, bytes, cores] = what;
    std::string title = label({level, kind, bytes, {}});
    title.resize(10, ' ');
    out << title << count << " x " << human_bytes(bytes) << ", "
        << (cores == 1 ? "one core each" : cat("each shared by ", cores, " cores")) << '\n';
  }
}

}  // namespace

std::string summary(const HostTopology& host) {
  std::ostringstream out;
  out << "host      " << (host.hostname.empty() ? "(unnamed)" : host.hostname) << '\n';
  for (size_t i = 0; i < host.packages.size(); ++i) {
    const Package& package = host.packages[i];
    out << "package " << i << " " << (package.model.empty() ? "" : package.model + ", ")
        << counted(package.cores.size(), "core") << '\n';
  }
  for (const NumaNode& node : host.numa_nodes) {
    out << "NUMA " << node.os_index << "    " << human_bytes(node.bytes) << ", cores "
        << (node.cores.empty() ? "none" : rank_ranges(node.cores)) << '\n';
  }
  describe_caches(host, out);
  out << "cores     " << host.cores.size() << " (" << counted(host.pus(), "hardware thread")
      << "), allowed " << host.allowed_cores() << " (" << host.allowed_pus() << ")\n"
      << "memory    " << human_bytes(host.memory_bytes) << '\n';
  return out.str();
}

Json to_json(const HostTopology& host) {
  Json json = {{"hostname", host.hostname},
               {"memory_bytes", host.memory_bytes},
               {"pus", host.pus()},
               {"allowed_pus", host.allowed_pus()},
               {"allowed_cores", host.allowed_cores()}};
  for (const char* list : {"packages", "numa_nodes", "caches", "cores"}) {
    json[list] = Json::array();
  }
  for (const Package& package : host.packages) {
    json["packages"].push_back({{"model", package.model}, {"cores", package.cores}});
  }
  for (const NumaNode& node : host.numa_nodes) {
    json["numa_nodes"].push_back(
        {{"os_index", node.os_index}, {"bytes", node.bytes}, {"cores", node.cores}});
  }
  for (const Cache& cache : host.caches) {
    json["caches"].push_back({{"level", cache.level},
                              {"kind", name(cache.kind)},
                              {"bytes", cache.bytes},
                              {"cores", cache.cores}});
  }
  for (const Core& core : host.cores) {
    json["cores"].push_back({{"package", core.package},
                             {"numa_node", core.numa_node},
                             {"pus", core.pus},
                             {"allowed_pus", core.allowed_pus}});
  }
  return json;
}

}  // namespace tutti
