// Where the launcher puts the ranks of this host, and so which of them are near each other.
#pragma once

#include <vector>

#include "topology/layout.h"

namespace tutti::tool {

struct Placement {
  // Of each rank: the hardware threads to bind it to; empty: none.
  std::vector<std::vector<int>> pus;
  std::vector<Domain> domains;
};

// By TUTTI_BIND and TUTTI_TOPOLOGY. Ranks are bound to this host only, to no other that it is told
// to be.
Placement place_ranks(int local_ranks);

// As the communicator of these ranks, alone on this host, sees them.
Layout layout_of(const Placement& placement);

}  // namespace tutti::tool
