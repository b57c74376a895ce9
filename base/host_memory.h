// Memory of this host, and of the container that this process runs in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

// Returns the bytes of physical memory; 0 if /proc/meminfo cannot be read.
uint64_t host_memory();
uint64_t available_host_memory();  // bytes usable by new processes without swapping
// Returns the smallest memory limit, in bytes, of this process's control group (v1 or v2) and the
// groups above it; nullopt: no limit. `root` is the directory that contains /proc and /sys.
std::optional<uint64_t> container_memory(const std::string& root = "");
// Returns the bytes that this process may still allocate: the smallest difference between the limit
// and the usage of its control group and of the groups above it. nullopt: no limit.
std::optional<uint64_t> free_container_memory();

}  // namespace tutti
