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

// Returns the interfaces that TUTTI_INTERFACE names. If the setting is empty, returns all
// interfaces that are up and have an address, except loopback and container bridges, which other
// hosts cannot reach. If the host has only loopback and container bridges, returns those.
std::vector<Interface> find_interfaces();

}  // namespace tutti::nccl
