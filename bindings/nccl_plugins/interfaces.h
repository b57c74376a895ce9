// The network interfaces that NCCL sees as devices.
#pragma once

#include <string>
#include <vector>

namespace tutti::nccl {

struct Interface {
  std::string name;      // "eth0", or an address, as in TUTTI_INTERFACE
  std::string pci_path;  // path in /sys; empty: not a PCI device
  int mbits = 0;         // megabits per second; 10 000 if unknown
};

// Returns the interfaces that TUTTI_INTERFACE names. Otherwise returns all that are up and have an
// address, except loopback and container bridges, which other hosts cannot reach; if there are no
// others, returns those.
std::vector<Interface> find_interfaces();

}  // namespace tutti::nccl
