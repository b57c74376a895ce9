// Guarded memory in programs that link this: everything from posix_memalign(), by which oneDNN
// allocates, cannot be written beyond its end. Sanitizers do not see what code generated at run
// time does; the processor does.
//
//   |  accessible: whole pages              | guard page |
//   | pattern |  the block        | pattern |           |
//                                   ^ the alignment's rest
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::training::testing {

// Returns the number of blocks, alive or freed, whose surroundings within their pages were written.
int64_t damaged_blocks();

}  // namespace tutti::training::testing
