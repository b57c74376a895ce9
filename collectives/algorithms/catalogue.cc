// Every built-in algorithm. One that wins nowhere and teaches nothing does not belong here.

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

std::vector<Algorithm> built_in() {
  return {
      // all_reduce
      all_reduce_naive(),
      all_reduce_parameter_server(),
      all_reduce_ring(),
      all_reduce_double_binary_tree(),
      all_reduce_recursive_doubling(),
      // all_gather
      all_gather_ring(),
      // reduce_scatter
      reduce_scatter_ring(),
      // broadcast
      broadcast_binomial(),
      // reduce
      reduce_binomial(),
      // gather, scatter
      // all_to_all
      // scan, exscan
      // barrier
      barrier_dissemination(),
  };
}

}  // namespace tutti::algorithms
