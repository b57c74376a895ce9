// The network interfaces that NCCL gets to see as devices.
#pragma once

#include <string>
#include <vector>

namespace tutti::nccl {

struct Interface {
  std::string name;      // "eth0", or an address, as TUTTI_INTERFACE has it
  std::string pci_path;  // in /sys; empty: it is no PCI device
  int mbits = 0;         // per second; 10 000 where the system does not know
};

// Those of TUTTI_INTERFACE; else all that are up and have an address, but for loopback and the
// bridges of containers, which no other host reaches; these where there is nothing else.
std::vector<Interface> find_interfaces();

}  // namespace tutti::nccl
