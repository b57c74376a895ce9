// The network interfaces that NCCL sees as devices.
#pragma once

#include <string>
#include <vector>

namespace tutti::nccl {

struct Interface {
  std::string name;      // "eth0", or an address, as in TUTTI_INTERFACE
  std::string pci_path;  // in /sys; empty: not a PCI device
  int mbits = 0;         // per second; 10 000 if unknown
};

// Returns the interfaces of TUTTI_INTERFACE; otherwise all that are up and have an address, except
// loopback and container bridges, which other hosts cannot reach; those if there is nothing else.
std::vector<Interface> find_interfaces();

}  // namespace tutti::nccl
