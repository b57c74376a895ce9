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

// Returns the numeric address at which other hosts reach this machine. If `interface` (the name or
// an address of a network interface) is not empty, it is the address of that interface. Otherwise
// it is the first of these that exists and is neither loopback nor link-local: an address of this
// machine to which `host` resolves; the address of the default route; an address of an interface
// that is up. Throws Error if there is no such address.
std::string reachable_address(const std::string& host, const std::string& interface);

}  // namespace tutti::tool
