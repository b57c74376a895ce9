// What pairs of ranks have reached, as costs: the numbers of `tutti topo --measure` in the file of
// `tutti tune`.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost/cost_model.h"
#include "topology/measured_graph.h"

namespace tutti::bench {

// Changes in `model` the latency inside hosts and the latency and the cards between hosts, where
// pairs of that kind were measured: all else is of processors, of which pairs tell nothing. `alone`
// was measured pair by pair, `together` all at the same time, which is where the ranks of a host
// share its card. Between hosts is `between`. `host_of`: names, by rank.
void learn_from_pairs(const std::vector<std::string>& host_of,
                      const std::vector<MeasuredPair>& alone,
                      const std::vector<MeasuredPair>& together, PathClass between,
                      CostModel& model);

}  // namespace tutti::bench
