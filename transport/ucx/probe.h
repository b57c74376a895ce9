// Describes UCX on this machine for people.
#pragma once

#include <string>
#include <vector>

namespace tutti::ucx {

// Return the version and the devices. Both throw Error: unsupported (no UCX), system.
std::string version();               // such as "1.13.1"
std::vector<std::string> devices();  // such as "tcp/eth0", "rc_verbs/mlx5_0:1"

}  // namespace tutti::ucx
