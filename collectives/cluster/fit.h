// Fits a cluster's parameters to measurements.
#pragma once

#include <span>

#include "collectives/cluster/cluster.h"
#include "collectives/cluster/measured_table.h"

namespace tutti {

// Returns parameters fitted to `calls`. It starts from `prior` and minimises the sum of squared
// log(measured / predicted), with reduced weight for outliers and a penalty on changed parameters.
// The numbers of hosts and of GPUs per host are the largest among the prior's and the measured
// ones. The errors of the result are the residuals by size class.
Cluster fit(const Cluster& prior, std::span<const MeasuredCall> calls);

// Returns the mean of |predicted / measured - 1| by size class; NaN for a class without calls.
std::array<double, 3> mean_errors(Cluster cluster, std::span<const MeasuredCall> calls);

}  // namespace tutti
