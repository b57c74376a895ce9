// How long a host, or the network to it, may be silent.
#pragma once

#include <chrono>

namespace tutti {

// The setting TUTTI_NETWORK_TIMEOUT, at least two seconds.
std::chrono::milliseconds network_timeout();

}  // namespace tutti
