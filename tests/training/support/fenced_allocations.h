// Memory that cannot be written past its end, in programs that are linked with this: all that
// posix_memalign() gives, as oneDNN takes its own. No sanitizer sees what code does that is
// generated when the program runs; the processor does.
//
//   |  may be touched: whole pages          |  may not  |
//   | pattern |  the block        | pattern |           |
//                                   ^ the alignment's rest
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::training::testing {

// Blocks, alive or freed, whose surroundings were written to within their pages.
int64_t damaged_blocks();

}  // namespace tutti::training::testing
