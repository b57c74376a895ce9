#include "tools/launcher/memory_events.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/text.h"

namespace tutti::tool {

namespace {

namespace fs = std::filesystem;

// Returns the number after `name` in a file of names and numbers; 0 if it is missing.
int64_t number_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  while (file >> word >> value) {
    if (word == name) return value;
  }
  return 0;
}

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // the file is missing, or contains "max"
  return value;
}

std::string in_mib(int64_t bytes) { return cat((bytes + (1 << 19)) >> 20, " MiB"); }

}  // namespace

OutOfMemoryWatch::OutOfMemoryWatch(std::string root) : root_(std::move(root)) {
  groups_ = control_groups("memory", root_);
  const bool has_first = std::ranges::any_of(groups_, &ControlGroup::is_first_version);
  // If both versions of control groups are mounted, version 1 counts memory. In a container, /proc
  // may show a path of the host, while only the container's own group is mounted. Such a path does
  // not exist here and is removed.
  std::erase_if(groups_, [&](const ControlGroup& group) {
    return group.is_first_version != has_first || !fs::is_directory(group.path);
  });
  before_ = counts();
}

OutOfMemoryWatch::Counts OutOfMemoryWatch::counts() const {
  Counts counts{.host = number_of(root_ + "/proc/vmstat", "oom_kill")};
  if (!groups_.empty()) {
    const ControlGroup& own = groups_.front();
    counts.group = number_of(
        own.path / (own.is_first_version ? "memory.oom_control" : "memory.events"), "oom_kill");
  }
  return counts;
}

// Describes the lowest memory limit of this group and its ancestors, and the memory use of the
// group that has this limit.
std::string OutOfMemoryWatch::limit() const {
  constexpr int64_t kUnlimited = int64_t{1} << 60;  // cgroup v1 uses a huge number for no limit
  int64_t lowest = kUnlimited;
  std::optional<int64_t> used;
  for (const ControlGroup& group : groups_) {
    const bool first = group.is_first_version;
    const auto limit = number_in(group.path / (first ? "memory.limit_in_bytes" : "memory.max"));
    if (!limit || *limit >= lowest) continue;
    lowest = *limit;
    used = number_in(group.path / (first ? "memory.max_usage_in_bytes" : "memory.peak"));
  }
  if (lowest == kUnlimited) return "";
  return cat(" (limit of its control group: ", in_mib(lowest),
             used ? cat(", peak use: ", in_mib(*used)) : "", ")");
}

std::string OutOfMemoryWatch::explain(int killed) {
  const Counts now = counts();
  const Counts rise{.group = now.group - before_.group, .host = now.host - before_.host};
  before_ = now;
  if (killed <= 0 || std::max(rise.group, rise.host) <= 0) return "";
  constexpr const char* kBy = "by the kernel's out-of-memory killer";
  if (rise.group >= killed) return cat(kBy, limit());
  if (rise.group > 0) {
    return cat("probably ", kBy, limit(), ", which ended ", rise.group, " of ", killed,
               " processes");
  }
  return cat("probably ", kBy, ", which ended ", rise.host,
             rise.host == 1 ? " process" : " processes", " of this host at that time");
}

}  // namespace tutti::tool
