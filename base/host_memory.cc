#include "base/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/control_groups.h"

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

// Returns nullopt if the file has no number, as for a group without a limit.
std::optional<uint64_t> bytes_in(const fs::path& path) {
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // v1 writes a huge number
  std::ifstream file(path);
  uint64_t bytes = 0;
  if (file >> bytes && bytes < kNoLimit) return bytes;
  return std::nullopt;
}

std::optional<uint64_t> limit_of(const ControlGroup& group) {
  return bytes_in(group.path / (group.is_first_version ? "memory.limit_in_bytes" : "memory.max"));
}

}  // namespace

uint64_t host_memory() { return memory_of("MemTotal"); }
uint64_t available_host_memory() { return memory_of("MemAvailable"); }

std::optional<uint64_t> container_memory(const std::string& root) {
  std::optional<uint64_t> least;
  for (const ControlGroup& group : control_groups("memory", root)) {
    const auto bytes = limit_of(group);
    if (bytes) least = std::min(least.value_or(*bytes), *bytes);
  }
  return least;
}

std::optional<uint64_t> free_container_memory() {
  std::optional<uint64_t> least;
  for (const ControlGroup& group : control_groups("memory")) {
    const auto bytes = limit_of(group);
    if (!bytes) continue;
    const char* const usage = group.is_first_version ? "memory.usage_in_bytes" : "memory.current";
    const uint64_t used = std::min(*bytes, bytes_in(group.path / usage).value_or(0));
    least = std::min(least.value_or(*bytes), *bytes - used);
  }
  return least;
}

}  // namespace tutti
