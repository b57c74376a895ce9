// Processors that the processes of a host can actually use.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Returns the processors of this process as text, which can be sent to other processes: its
// affinity (cpusets included, such as `docker --cpuset-cpus`) and its container's CPU quota
// (cgroups), such as "0-3,8" or "0-3,8 quota 1.5".
std::string own_processors();

// Returns true if this process may run on one of `processors`, in sysfs notation "0-3,8".
bool may_run_on(std::string_view processors);

// Returns the number of processors that the processes of one host have together, at least 1.
// `processes` has the own_processors() of each, because ranks may be bound to different processors.
// The largest quota applies, or no quota if some process has none.
int usable_processors(std::span<const std::string> processes);
// Returns the number of processors of this process alone.
int usable_processors();

// Returns the CPU time used by this process's threads.
std::chrono::nanoseconds processor_time();

}  // namespace tutti
