// This program on another host, by the remote shell that TUTTI_RSH names.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace tutti::tool {

// The absolute path of this program, which must be the same on all hosts.
std::string this_program();

// How a shell reads back the word as it is.
std::string quoted_for_shell(const std::string& word);

// `RSH HOST THIS_PROGRAM WORDS...`; on this host itself, by any of its names, no shell is needed.
// Throws Error(invalid_argument) where TUTTI_RSH is empty.
std::vector<std::string> remote_command(const std::string& host,
                                        const std::vector<std::string>& words);

// Waits for a child that start_child() started; kills its process group when that takes too long.
// Returns its exit code as a shell would say it.
int wait_for_child(pid_t pid, std::chrono::milliseconds at_most);

}  // namespace tutti::tool
