// The processes of this host, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace tutti {

std::vector<pid_t> all_processes();

// What the process was started with. Empty where it has gone, or is another user's.
std::map<std::string, std::string> environment_of(pid_t pid);

}  // namespace tutti
