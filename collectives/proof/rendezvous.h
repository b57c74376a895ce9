// Checks whether programs terminate without any buffering, that is, if a send completes only when
// its readers have read the data. If they terminate, messages can be read in place without a copy.
//
// Some programs do not terminate. Two ranks that exchange a chunk in place need at least one copy:
//
//   send x        waits until the other rank has read x, but that rank receives into its own x
//   recv into x   only after its own x has been read
#pragma once

#include <span>

#include "collectives/program/plan.h"

namespace tutti {

// Returns true if the programs terminate without buffering. `plans[r]` is rank r's plan.
bool ends_without_buffers(std::span<const Plan> plans);

}  // namespace tutti
