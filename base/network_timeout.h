// How long a host, or the network to it, may be silent.
#pragma once

#include <chrono>

namespace tutti {

// The setting TUTTI_NETWORK_TIMEOUT, at least two seconds.
std::chrono::milliseconds network_timeout();

// Of a socket's errno: the network has brought nothing, not even a refusal.
bool is_silence(int error);

// Of a socket's errno: both ends may live, and something between them has ended the connection.
bool is_reset(int error);

}  // namespace tutti
