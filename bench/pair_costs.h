// Converts measured latency and bandwidth of pairs of ranks into costs, which `tutti topo
// --measure` stores in the file of `tutti tune`.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost/cost_model.h"
#include "topology/measured_graph.h"

namespace tutti::bench {

// Updates costs in `model` from measured pairs of ranks: the latency within hosts, and the latency
// and card bandwidth between hosts (path class `between`). Costs for which no pairs were measured,
// and the processors' costs, do not change. `host_of`: host name by rank. `alone`: pairs measured
// one by one. `together`: pairs measured at the same time, so that the ranks of a host shared its
// card.
void learn_from_pairs(const std::vector<std::string>& host_of,
                      const std::vector<MeasuredPair>& alone,
                      const std::vector<MeasuredPair>& together, PathClass between,
                      CostModel& model);

}  // namespace tutti::bench
