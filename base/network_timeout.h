// The time after which a silent host, or the network to it, counts as failed.
#pragma once

#include <chrono>

namespace tutti {

// Returns the setting TUTTI_NETWORK_TIMEOUT, limited to between two seconds and 24 hours; 24 hours
// if it is 0.
std::chrono::milliseconds network_timeout();

// Classifies a socket's errno: true if the network delivered nothing, not even a refusal.
bool is_silence(int error);

// Classifies a socket's errno: true if both ends may live but a device between them ended the
// connection.
bool is_reset(int error);

}  // namespace tutti
