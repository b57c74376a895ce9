// Places the ranks on this host, and determines groups of near ranks.
#pragma once

#include <vector>

#include "topology/layout.h"

namespace tutti::tool {

struct Placement {
  // Indexed by local rank: hardware threads to which the rank is bound; empty: not bound.
  std::vector<std::vector<int>> pus;
  std::vector<Domain> domains;
};

// Places ranks by TUTTI_BIND and TUTTI_TOPOLOGY. Ranks are not bound if TUTTI_TOPOLOGY describes
// another host.
Placement place_ranks(int local_ranks);

// Returns the layout of a communicator of these ranks on this host.
Layout layout_of(const Placement& placement);

}  // namespace tutti::tool
