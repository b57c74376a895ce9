// All-reduce over several rings at a time, each with its part of the buffer: NCCL's channels.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/program/program.h"

namespace tutti::algorithms {

// A rank's program. Each ring is all ranks in an order of its own, at least one; results have the
// same bits on all ranks.
Program all_reduce_over_rings(const std::vector<std::vector<int32_t>>& rings, int32_t rank);

}  // namespace tutti::algorithms
