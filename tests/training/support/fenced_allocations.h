// Detects writes beyond memory blocks in programs that link this. It replaces posix_memalign(),
// which oneDNN uses: a guard page follows each block, so the processor stops a write beyond it.
// Sanitizers do not see such writes, because oneDNN generates its code at run time.
//
//   |  accessible: whole pages              | guard page |
//   | pattern |  the block        | pattern |           |
//                                   ^ padding for the alignment
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::training::testing {

// Returns the number of blocks, alive or freed, next to which the pattern was overwritten.
int64_t damaged_blocks();

}  // namespace tutti::training::testing
