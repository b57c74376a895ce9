#include "tools/launcher/placement.h"

#include "base/settings.h"
#include "topology/host.h"

namespace tutti::tool {

Placement place_ranks(int local_ranks) {
  Placement placement;
  placement.pus.resize(static_cast<size_t>(local_ranks));
  if (settings().get_string("TUTTI_BIND") != "none") {
    placement.pus = bind_local_ranks(this_host(), local_ranks);
  }
  placement.domains = domains_of(this_host(), placement.pus);
  if (!settings().get_string("TUTTI_TOPOLOGY").empty()) {
    for (std::vector<int>& rank : placement.pus) rank.clear();
  }
  return placement;
}

Layout layout_of(const Placement& placement) {
  std::vector<Place> places;
  for (const Domain& domain : placement.domains) places.push_back({.host = {}, .domain = domain});
  return Layout::of(places);
}

}  // namespace tutti::tool
