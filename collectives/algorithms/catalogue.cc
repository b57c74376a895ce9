// The list of built-in algorithms. Some are never the fastest; they are listed for comparison.

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

std::vector<Algorithm> built_in() {
  return {
      // all_reduce
      all_reduce_naive(),
      all_reduce_parameter_server(),
      all_reduce_one_shot(),
      all_reduce_two_shot(),
      all_reduce_ring(),
      all_reduce_ring_bidirectional(),
      all_reduce_torus_bucket(),
      all_reduce_knomial(4),
      all_reduce_knomial(8),
      all_reduce_double_binary_tree(),
      all_reduce_recursive_doubling(),
      all_reduce_recursive_multiplying(3),
      all_reduce_recursive_multiplying(4),
      all_reduce_recursive_multiplying(8),
      all_reduce_halving_doubling(),
      all_reduce_circulant(),
      all_reduce_swing(),
      all_reduce_hierarchical(),
      // all_gather
      all_gather_all_pairs(),
      all_gather_ring(),
      all_gather_neighbour_exchange(),
      all_gather_bruck(),
      all_gather_recursive_doubling(),
      all_gather_pat(),
      all_gather_hierarchical(),
      // reduce_scatter
      reduce_scatter_all_pairs(),
      reduce_scatter_pairwise(),
      reduce_scatter_ring(),
      reduce_scatter_recursive_halving(),
      reduce_scatter_circulant(),
      reduce_scatter_pat(),
      reduce_scatter_hierarchical(),
      // broadcast
      broadcast_linear(),
      broadcast_knomial(2),
      broadcast_knomial(4),
      broadcast_knomial(8),
      broadcast_chain(1),
      broadcast_chain(8),
      broadcast_chain(32),
      broadcast_scatter_all_gather(),
      broadcast_double_tree(),
      broadcast_hierarchical(),
      // reduce
      reduce_linear(),
      reduce_knomial(2),
      reduce_knomial(4),
      reduce_knomial(8),
      reduce_two_shot(),
      reduce_scatter_gather(),
      reduce_chain(1),
      reduce_chain(8),
      reduce_chain(32),
      reduce_double_tree(),
      reduce_hierarchical(),
      // gather, scatter
      gather_linear(),
      gather_binomial(),
      scatter_linear(),
      scatter_binomial(),
      // all_to_all
      all_to_all_linear(),
      all_to_all_bruck(),
      all_to_all_hierarchical(),
      all_to_all_leaders(),
      // scan, exscan
      scan_recursive_doubling(),
      scan_chain(),
      exscan_recursive_doubling(),
      exscan_chain(),
      // barrier
      barrier_dissemination(2),
      barrier_dissemination(4),
  };
}

}  // namespace tutti::algorithms
