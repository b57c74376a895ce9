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

// What follows `name` in /proc/meminfo, in bytes.
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

}  // namespace

uint64_t host_memory() { return memory_of("MemTotal"); }
uint64_t available_host_memory() { return memory_of("MemAvailable"); }

std::optional<uint64_t> container_memory() {
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // the first version writes a huge number
  std::optional<uint64_t> least;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "4:memory:/path" in the first version, "0::/path" in the second.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = cat(",", line.substr(first + 1, second - first - 1), ",");
    const bool is_first_version = controllers.find(",memory,") != std::string::npos;
    if (!is_first_version && controllers != ",,") continue;
    const fs::path root = is_first_version ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    const char* name = is_first_version ? "memory.limit_in_bytes" : "memory.max";
    // A container sees its own group as the root, so that the path may lead nowhere.
    for (fs::path path = line.substr(second + 1);; path = path.parent_path()) {
      std::ifstream file(root / path.relative_path() / name);
      uint64_t bytes = 0;
      if (file >> bytes && bytes < kNoLimit) least = std::min(least.value_or(bytes), bytes);
      if (path.relative_path().empty()) break;
    }
  }
  return least;
}

}  // namespace tutti
