// Runs this program on another host through the remote shell of TUTTI_RSH.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace tutti::tool {

// Returns the absolute path of this program, which must be the same on all hosts.
std::string this_program();

// Quotes the word for a shell.
std::string quoted_for_shell(const std::string& word);

// Returns `RSH HOST THIS_PROGRAM WORDS...`; without the shell if `host` is a name of this host.
// Throws Error(invalid_argument) if TUTTI_RSH is empty.
std::vector<std::string> remote_command(const std::string& host,
                                        const std::vector<std::string>& words);

// Waits for a child of start_child(); kills its process group after `at_most`. Returns its shell
// exit code.
int wait_for_child(pid_t pid, std::chrono::milliseconds at_most);

}  // namespace tutti::tool
