// Memory of this host, and of the container around this process.
#pragma once

#include <cstdint>
#include <optional>

namespace tutti {

// Bytes; 0 if /proc/meminfo cannot be read.
uint64_t host_memory();
uint64_t available_host_memory();  // that new processes can use without swapping
// The least limit from this process's control group (v1 or v2) up to the root; none: no limit.
std::optional<uint64_t> container_memory();
// Unused bytes of the group with the least left; none: no limit.
std::optional<uint64_t> free_container_memory();

}  // namespace tutti
