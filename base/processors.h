// How many processors this process's host really gives it.
#pragma once

namespace tutti {

// Those that are online, or fewer where a container's quota allows the time of fewer (cgroups). At
// least 1. Not what this process is bound to: the other ranks are bound elsewhere.
int usable_processors();

}  // namespace tutti
