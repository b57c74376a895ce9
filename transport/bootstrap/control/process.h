// The process id, without a system call.
#pragma once

#include <sys/types.h>

namespace tutti::bootstrap {

// Returns the pid. It is correct also right after fork().
pid_t current_process();

}  // namespace tutti::bootstrap
