// Which of the providers, network cards and interfaces that libfabric has found a rank takes.
#pragma once

#include <rdma/fabric.h>

#include <string>

namespace tutti::ofi {

// Where a rank is.
struct Near {
  std::string address;  // of the interface that leads to the others: numeric, or empty
  int local_rank = 0;   // of cards that are equally near to it, it takes that number modulo theirs
};

// Providers that only connect the ranks of a host, or are slower than sockets, are not taken unless
// FI_PROVIDER or `provider` names them. Of the interfaces of one provider: that of the address,
// else one that is not loopback, which is taken only where no address is given. Of cards without
// such addresses (EFA, Slingshot, Omni-Path): one that is next to the processors on which this
// process may run. `sys`: where the system's files are. Null where there is none.
const fi_info* choose(const fi_info* all, const Near& near, const std::string& provider = "",
                      const std::string& sys = "/sys");

}  // namespace tutti::ofi
