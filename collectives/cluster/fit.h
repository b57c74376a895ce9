// Parameters of a cluster from what was measured on it.
#pragma once

#include <span>

#include "collectives/cluster/cluster.h"
#include "collectives/cluster/measured_table.h"

namespace tutti {

// Begins with `prior`, and moves each parameter as far as the calls ask for: the sum of squared
// logarithms of measured / predicted, of which far outliers count less, and of what parameters were
// moved. Its hosts are the most that were measured. Cluster::error becomes what is left, by size.
Cluster fit(const Cluster& prior, std::span<const MeasuredCall> calls);

// The mean of |predicted / measured - 1| by error_class(); NaN where there is no such call.
std::array<double, 3> mean_errors(Cluster cluster, std::span<const MeasuredCall> calls);

}  // namespace tutti
