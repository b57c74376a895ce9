// All-reduce over several rings at once. Each ring reduces an equal part of the buffer, as the
// channels of NCCL do.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/program/program.h"

namespace tutti::algorithms {

// Returns a rank's program. `rings` has at least one ring; each is a permutation of all ranks. All
// ranks get the same bits.
Program all_reduce_over_rings(const std::vector<std::vector<int32_t>>& rings, int32_t rank);

}  // namespace tutti::algorithms
