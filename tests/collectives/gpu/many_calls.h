// All-reduces by a possibly broken kernel: by a ring in place, or from lent memory that is
// overwritten as soon as the rules allow it.
#pragma once

#include <chrono>
#include <cstdint>

#include "tests/collectives/gpu/emulated_gpus.h"
#include "tests/support/host_gpu/grid.h"

namespace tutti::testing {

// Returns true if one of many calls has a wrong result, finds a mismatched message, or does not
// end. The kernel is for i32. Makes two calls per seed, up to the first wrong one: a broken kernel
// may be right for long, depending on the host's thread schedule. `way`: the protocol, and whether
// messages are lent.
bool is_wrong_by(const host_gpu::NamedKernel& kernel, const GpuSetting& way,
                 std::chrono::milliseconds patience, uint64_t seeds);

}  // namespace tutti::testing
