// Finds descendants of this process in /proc.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace tutti::tool::chaos {

// Makes this process the subreaper: orphans become its children, so that descendants() contains
// every process that was started from here and still runs.
void adopt_orphans();

// Returns the living descendants of this process, parents before their children.
std::vector<pid_t> descendants();

// Returns the process of each rank: the outermost descendant with RANK in its environment.
std::map<int, pid_t> rank_processes();

// Returns true if the process runs in the network namespace `name` of `ip netns`.
bool is_in_namespace(pid_t pid, const std::string& name);

// Returns a text: "1234 (sleep 100)".
std::string in_words(pid_t pid);

// Returns true if a process of this host has mapped the file.
bool is_mapped(const std::string& file);

// Kills the process and returns true if the signal ended it; returns false if it ended by itself,
// so that its exit code is valid. A stopped process cannot end by itself before the signal.
bool kill_alive(pid_t pid);

// Kills all descendants. Returns when none is left, or after 5 s if the kernel cannot end some.
void kill_descendants();

}  // namespace tutti::tool::chaos
