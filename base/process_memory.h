// How much memory this process takes, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// The proportional set size in bytes: a page that several processes have mapped counts for each of
// them by its share. (The resident set counts it whole for each: ranks of one host read each
// other's gradients in place.) 0 where the kernel does not tell.
int64_t proportional_set_size(const std::string& file = "/proc/self/smaps_rollup");

}  // namespace tutti
