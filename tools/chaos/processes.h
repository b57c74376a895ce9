// The processes below this one, as /proc tells of them.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace tutti::tool::chaos {

// From now on, whose parent ends comes to this process: so descendants() has all that was ever
// started from here, whatever has become of its parents.
void adopt_orphans();

// Of this process, parents before their children; none that has ended.
std::vector<pid_t> descendants();

// Of these, the process of each rank: the outermost one that has RANK in its environment.
std::map<int, pid_t> rank_processes();

// True if the process runs in that network namespace of `ip netns`.
bool is_in_namespace(pid_t pid, const std::string& name);

// "1234 (sleep 100)"
std::string in_words(pid_t pid);

// Some process of this host has mapped the file.
bool is_mapped(const std::string& file);

// True if the process ends by this. False where it ends or has ended by itself: its exit code then
// stands, whatever signal comes. A process that stops first is not ending.
bool kill_alive(pid_t pid);

// Returns when no descendant is left, or only what the kernel does not let go.
void kill_descendants();

}  // namespace tutti::tool::chaos
