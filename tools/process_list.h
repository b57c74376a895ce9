// Reads the processes of this host from /proc.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace tutti {

std::vector<pid_t> all_processes();

// Returns the initial environment of the process; empty if the process has ended or belongs to
// another user.
std::map<std::string, std::string> environment_of(pid_t pid);

}  // namespace tutti
