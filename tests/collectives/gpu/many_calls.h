// Runs all-reduces by a kernel that might be broken: by a ring in place, or with lent inputs that
// are overwritten as soon as the protocol allows it.
#pragma once

#include <chrono>
#include <cstdint>

#include "tests/collectives/gpu/emulated_gpus.h"
#include "tests/support/host_gpu/grid.h"

namespace tutti::testing {

// Returns true if one of many calls has a wrong result, finds a mismatched message, or does not
// end. Makes two calls per seed and stops after the first failure; many are needed, because a
// broken kernel may be right for long, depending on how the host schedules threads. The kernel is
// for i32. `way` has the protocol, and whether messages are lent.
bool is_wrong_by(const host_gpu::NamedKernel& kernel, const GpuSetting& way,
                 std::chrono::milliseconds patience, uint64_t seeds);

}  // namespace tutti::testing
