// Selects one of libfabric's providers, network cards and interfaces for a rank.
#pragma once

#include <rdma/fabric.h>

#include <string>

namespace tutti::ofi {

// The location of a rank.
struct Near {
  std::string address;  // numeric address of the interface that leads to the others, or empty
  int local_rank = 0;   // selects one of several equally near cards, modulo their number
};

// Providers that only connect the ranks of a host, or are slower than sockets, are used only if
// FI_PROVIDER or `provider` names them. Among the interfaces of one provider, the one with the
// given address is used, else one that is not loopback; loopback is used only if no address is
// given. Among cards without IP addresses (EFA, Slingshot, Omni-Path), one next to this process's
// processors is used. `sys`: the system's directory. Returns null if there is none.
const fi_info* choose(const fi_info* all, const Near& near, const std::string& provider = "",
                      const std::string& sys = "/sys");

}  // namespace tutti::ofi
