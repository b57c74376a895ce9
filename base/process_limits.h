// Limits of the process that would end it without a word.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace tutti {

// Throws Error(system) where the stack is limited (ulimit -s) to less than the program needs: it
// would be ended by SIGSEGV.
void require_stack();

// Cause and remedy for memory that cannot be had: a limit of the process (ulimit -v), or the
// machine's memory.
ErrorDetail memory_detail();
// Whether a file of so many bytes, shared memory among them, is more than this process may write
// (ulimit -f): SIGXFSZ would end it. And why.
bool exceeds_file_limit(uint64_t bytes);
ErrorDetail file_size_detail();
// The error for std::bad_alloc.
Error memory_shortage();

}  // namespace tutti
