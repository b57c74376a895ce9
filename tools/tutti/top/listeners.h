// Where a process listens, as the system tells it.
#pragma once

#include <vector>

#include "transport/bootstrap/handshake/socket.h"

namespace tutti::tool {

// The addresses of its listening TCP sockets, to connect to from this host; empty where it has
// none, or is another user's.
std::vector<bootstrap::SocketAddress> listeners_of(int pid);

}  // namespace tutti::tool
