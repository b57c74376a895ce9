// Placement of the ranks on this host, and the groups of near ranks that follow from it.
#pragma once

#include <vector>

#include "topology/layout.h"

namespace tutti::tool {

struct Placement {
  // Hardware threads to bind each rank to; empty: no binding.
  std::vector<std::vector<int>> pus;
  std::vector<Domain> domains;
};

// Places ranks by TUTTI_BIND and TUTTI_TOPOLOGY. Ranks are not bound if TUTTI_TOPOLOGY describes
// another host.
Placement place_ranks(int local_ranks);

// Returns the layout of a communicator of these ranks on this host.
Layout layout_of(const Placement& placement);

}  // namespace tutti::tool
