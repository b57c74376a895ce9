// Which process this is, without a system call.
#pragma once

#include <sys/types.h>

namespace tutti::bootstrap {

// The pid, also right after fork().
pid_t current_process();

}  // namespace tutti::bootstrap
