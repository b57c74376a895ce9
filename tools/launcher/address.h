// Opens the socket on which rank 0 will listen. The launcher opens it, which guarantees that the
// port is free.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace tutti::tool {

struct Listener {
  Fd socket;
  std::string address;  // numeric address
  uint16_t port = 0;
};

// Listens on `address`, on a port chosen by the system. Throws Error if that fails.
Listener listen_on(const std::string& address);

// Returns the numeric address at which other hosts reach this machine. This is the first of these
// addresses that exists: the address of `interface` (a network interface or an address), if given;
// the address to which `host` resolves, if that address belongs to this machine and is not
// loopback; the address of the default route; the first global address of an interface that is up.
// Throws Error if none exists.
std::string reachable_address(const std::string& host, const std::string& interface);

}  // namespace tutti::tool
