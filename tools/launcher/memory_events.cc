#include "tools/launcher/memory_events.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
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

OutOfMemoryWatch::OutOfMemoryWatch(std::string root)
    : root_(std::move(root)), mount_(root_ + "/sys/fs/cgroup") {
  // Lines have the form "4:memory:/path" in version 1, and "0::/path" in version 2.
  std::ifstream file(root_ + "/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(file, line);) {
    std::istringstream of_line(line);
    std::string number;
    std::string controllers;
    std::string place;
    std::getline(of_line, number, ':');
    std::getline(of_line, controllers, ':');
    std::getline(of_line, place);
    if (cat(",", controllers, ",").find(",memory,") != std::string::npos) {
      first_version_ = true;
      path = place;
    } else if (controllers.empty() && !first_version_) {
      path = place;
    }
  }
  if (first_version_) mount_ += "/memory";
  group_ = mount_ + (path == "/" ? "" : path);
  // In a container the mount may be the container's own group, while the path is that of the host.
  if (!fs::is_directory(group_)) group_ = mount_;
  before_ = counts();
}

OutOfMemoryWatch::Counts OutOfMemoryWatch::counts() const {
  const std::string events = first_version_ ? "/memory.oom_control" : "/memory.events";
  return {.group = number_of(group_ + events, "oom_kill"),
          .host = number_of(root_ + "/proc/vmstat", "oom_kill")};
}

// Returns a description of the lowest limit of this group and its ancestors, and the memory use of
// the group that has it.
std::string OutOfMemoryWatch::limit() const {
  constexpr int64_t kUnlimited = int64_t{1} << 60;  // cgroup v1 uses a huge number for no limit
  int64_t lowest = kUnlimited;
  std::optional<int64_t> used;
  for (fs::path group = group_;; group = group.parent_path()) {
    const std::string max = first_version_ ? "memory.limit_in_bytes" : "memory.max";
    if (const auto limit = number_in(group / max); limit && *limit < lowest) {
      lowest = *limit;
      used = number_in(group / (first_version_ ? "memory.max_usage_in_bytes" : "memory.peak"));
    }
    if (group == mount_ || group == group.parent_path()) break;
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
