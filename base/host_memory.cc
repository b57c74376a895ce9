#include "base/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/text.h"

namespace tutti {

namespace fs = std::filesystem;

namespace {

// Returns the bytes that /proc/meminfo reports for `name`, or 0.
uint64_t memory_of(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t kilobytes = 0;
    if (words >> key >> kilobytes && key == name + ":") return kilobytes << 10;
  }
  return 0;
}

// Calls body(group, limit, usage) for each memory control group (v1 or v2) of this process, from
// its own up to the root: directories, and the names of their files.
template <typename Body>
void for_each_group(const Body& body) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // v1 writes "4:memory:/path", v2 writes "0::/path".
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = cat(",", line.substr(first + 1, second - first - 1), ",");
    const bool is_first_version = controllers.find(",memory,") != std::string::npos;
    if (!is_first_version && controllers != ",,") continue;
    const fs::path root = is_first_version ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    // A container sees its own group as the root, so the path may not exist.
    for (fs::path path = line.substr(second + 1);; path = path.parent_path()) {
      body(root / path.relative_path(), is_first_version ? "memory.limit_in_bytes" : "memory.max",
           is_first_version ? "memory.usage_in_bytes" : "memory.current");
      if (path.relative_path().empty()) break;
    }
  }
}

// Returns nullopt if the file has no number, as for a group without a limit.
std::optional<uint64_t> bytes_in(const fs::path& path) {
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // v1 writes a huge number
  std::ifstream file(path);
  uint64_t bytes = 0;
  if (file >> bytes && bytes < kNoLimit) return bytes;
  return std::nullopt;
}

}  // namespace

uint64_t host_memory() { return memory_of("MemTotal"); }
uint64_t available_host_memory() { return memory_of("MemAvailable"); }

std::optional<uint64_t> container_memory() {
  std::optional<uint64_t> least;
  for_each_group([&](const fs::path& group, const char* limit, const char*) {
    if (const auto bytes = bytes_in(group / limit))
      least = std::min(least.value_or(*bytes), *bytes);
  });
  return least;
}

std::optional<uint64_t> free_container_memory() {
  std::optional<uint64_t> least;
  for_each_group([&](const fs::path& group, const char* limit, const char* usage) {
    const auto bytes = bytes_in(group / limit);
    if (!bytes) return;
    const uint64_t used = std::min(*bytes, bytes_in(group / usage).value_or(0));
    least = std::min(least.value_or(*bytes), *bytes - used);
  });
  return least;
}

}  // namespace tutti
