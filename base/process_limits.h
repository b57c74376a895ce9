// Limits that would kill the process without a message.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace tutti {

// Throws Error(system) if the stack limit (ulimit -s) is below what the program needs: without this
// check it would die of SIGSEGV.
void require_stack();

// Returns cause and remedy for a failed allocation: a limit of the process (ulimit -v), or the
// machine's memory.
ErrorDetail memory_detail();
// Returns true if a file of `bytes` bytes, shared memory included, exceeds this process's limit
// (ulimit -f). Writing such a file would kill the process by SIGXFSZ.
bool exceeds_file_limit(uint64_t bytes);
// Returns cause and remedy for a file that exceeds the limit of file sizes.
ErrorDetail file_size_detail();
// Builds the error for std::bad_alloc.
Error memory_shortage();

}  // namespace tutti
