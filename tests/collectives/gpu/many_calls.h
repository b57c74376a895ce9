// All-reduces by a kernel that may be broken: by a ring in place, or from memory that is lent and
// overwritten as soon as that is allowed.
#pragma once

#include <chrono>
#include <cstdint>

#include "tests/collectives/gpu/emulated_gpus.h"
#include "tests/support/host_gpu/grid.h"

namespace tutti::testing {

// Whether some call of many has a wrong result, finds a message that does not fit, or does not end.
// The kernel is one for i32. Two calls for each seed, up to the first that is wrong: a broken one
// may be right for long, as the threads of the host come.
// `way`: the protocol, and whether messages are lent.
bool is_wrong_by(const host_gpu::NamedKernel& kernel, const GpuSetting& way,
                 std::chrono::milliseconds patience, uint64_t seeds);

}  // namespace tutti::testing
