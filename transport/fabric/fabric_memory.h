// Memory of this rank and of others on a fabric. Accesses use the provider's slots as buffers,
// which are registered once; a slot whose access was lost is never reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/fabric/provider.h"
#include "transport/remote_memory.h"

namespace tutti {

// Lets other ranks access `memory` over the fabric. Returns null if the fabric has no remote memory
// access, or refuses the memory. `provider` must outlive the result.
std::unique_ptr<ExposedMemory> expose_memory(fabric::Provider& provider,
                                             std::span<std::byte> memory);

// Returns the memory that the world rank `rank` has exposed with this key; null if the fabric
// cannot reach it. `provider` must outlive the result.
std::unique_ptr<RemoteMemory> reach_memory(fabric::Provider& provider, int rank,
                                           std::string_view key);

}  // namespace tutti
