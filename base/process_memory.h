// Memory use of this process, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// Returns the proportional set size in bytes: a page that n processes map counts as 1/n page in
// each. (The resident set would count the whole page in each, but ranks of one host read each
// other's gradients in place.) Returns 0 if the kernel does not report it.
int64_t proportional_set_size(const std::string& file = "/proc/self/smaps_rollup");

}  // namespace tutti
