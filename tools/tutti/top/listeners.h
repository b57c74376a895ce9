// Finds the listening sockets of a process.
#pragma once

#include <vector>

#include "transport/bootstrap/handshake/socket.h"

namespace tutti::tool {

// Returns the addresses of the process's listening TCP sockets, as seen from this host; empty if it
// has none or belongs to another user.
std::vector<bootstrap::SocketAddress> listeners_of(int pid);

}  // namespace tutti::tool
