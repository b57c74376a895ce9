// Selects one of libfabric's providers, network cards and interfaces for a rank.
#pragma once

#include <rdma/fabric.h>

#include <string>

namespace tutti::ofi {

// The location of a rank, which determines the network card to use.
struct Near {
  std::string address;  // numeric address of the interface that leads to the others, or empty
  int local_rank = 0;   // selects one of several equally near cards, modulo their number
};

// Returns the provider and interface to use, or null if there is none. Providers that only connect
// the ranks of a host, or are slower than sockets, are used only if FI_PROVIDER names them.
// `provider`: the only one to consider; empty: all. Among the interfaces of one provider, the one
// with the given address is used; otherwise one that is not loopback; loopback only if no address
// is given. Among cards without IP addresses (EFA, Slingshot, Omni-Path), one next to this
// process's processors is used. `sys`: the system's directory.
const fi_info* choose(const fi_info* all, const Near& near, const std::string& provider = "",
                      const std::string& sys = "/sys");

}  // namespace tutti::ofi
