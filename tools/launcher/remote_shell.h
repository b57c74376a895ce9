// Runs this program on another host through the remote shell of TUTTI_RSH.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace tutti::tool {

// Returns the absolute path of this program, which must be the same on all hosts.
std::string this_program();

// Returns the word quoted for a shell.
std::string quoted_for_shell(const std::string& word);

// Returns the command `RSH HOST THIS_PROGRAM WORDS...`, or `THIS_PROGRAM WORDS...` if `host` is a
// name of this host. Throws Error(invalid_argument) if TUTTI_RSH is empty.
std::vector<std::string> remote_command(const std::string& host,
                                        const std::vector<std::string>& words);

// Waits for a child of start_child(), and returns its shell exit code. Kills its process group
// after `at_most`.
int wait_for_child(pid_t pid, std::chrono::milliseconds at_most);

}  // namespace tutti::tool
