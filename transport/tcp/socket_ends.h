// Formats the two ends of a connected socket for messages: "10.0.0.1:4242", "[::1]:4242", or "?".
#pragma once

#include <string>

namespace tutti {

std::string own_end(int socket);
std::string peer_end(int socket);

}  // namespace tutti
