// Converts measured latency and bandwidth of pairs of ranks into costs, which `tutti topo
// --measure` stores in the file of `tutti tune`.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost/cost_model.h"
#include "topology/measured_graph.h"

namespace tutti::bench {

// Updates in `model` the latency within hosts, and the latency and card bandwidth between hosts
// (path class `between`), if pairs of that kind were measured. The other costs, which are those of
// processors, do not change. `alone` was measured pair by pair; `together` was measured with all
// pairs at the same time, so that the ranks of a host shared its card. `host_of`: host name by
// rank.
void learn_from_pairs(const std::vector<std::string>& host_of,
                      const std::vector<MeasuredPair>& alone,
                      const std::vector<MeasuredPair>& together, PathClass between,
                      CostModel& model);

}  // namespace tutti::bench
