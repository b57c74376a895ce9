// Tolerated silence of a host, or of the network to it.
#pragma once

#include <chrono>

namespace tutti {

// The setting TUTTI_NETWORK_TIMEOUT, at least two seconds.
std::chrono::milliseconds network_timeout();

// Classifies a socket's errno: true if the network delivered nothing, not even a refusal.
bool is_silence(int error);

// Classifies a socket's errno: true if both ends may live but a device between them ended the
// connection.
bool is_reset(int error);

}  // namespace tutti
