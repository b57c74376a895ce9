// The socket on which rank 0 will listen. The launcher opens it, so that the port is free for
// certain.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace tutti::tool {

struct Listener {
  Fd socket;
  std::string address;  // numeric
  uint16_t port = 0;
};

// Listens on `address`, on a port that the system chooses. Throws Error.
Listener listen_on(const std::string& address);

// The numeric address of this machine under which the other hosts reach it: what `interface` (a
// network interface or an address) says, if given; else what `host` resolves to, if that is an
// address of this machine and not loopback; else that of the default route; else the first global
// address of an interface that is up. Throws Error when there is none.
std::string reachable_address(const std::string& host, const std::string& interface);

}  // namespace tutti::tool
