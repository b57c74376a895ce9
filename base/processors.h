// How many processors the processes of a host really have.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Those that this process may run on (affinity; cpusets, such as `docker --cpuset-cpus`), and the
// time of how many a container's quota allows (cgroups): "0-3,8", or "0-3,8 quota 1.5". To be told
// to other processes.
std::string own_processors();

// Whether this process may run on one of these: "0-3,8", as sysfs writes them.
bool may_run_on(std::string_view processors);

// What these processes of one host have together, from what own_processors() said in each: ranks
// may be bound to different processors. Of quotas the largest one counts. At least 1.
int usable_processors(std::span<const std::string> processes);
// What this process has alone.
int usable_processors();

// The time that processors have spent on this process's threads.
std::chrono::nanoseconds processor_time();

}  // namespace tutti
