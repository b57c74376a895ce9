// One function per algorithm: its row of the catalogue (collectives/algorithm.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/program.h"

namespace tutti::algorithms {

Algorithm all_reduce_naive();
Algorithm all_reduce_parameter_server();
Algorithm all_reduce_ring();
Algorithm all_reduce_double_binary_tree();
Algorithm all_reduce_recursive_doubling();
Algorithm all_gather_ring();
Algorithm reduce_scatter_ring();
Algorithm broadcast_binomial();
Algorithm reduce_binomial();
Algorithm barrier_dissemination();

// Rounds of doubling until p ranks are covered: the logarithm to base 2, rounded up.
int32_t doublings(int32_t ranks);

// Most distinct ranks that any rank sends to, for algorithms without a simple formula.
int32_t largest_fan_out(int32_t ranks, std::vector<Step> (*steps)(int32_t ranks, int32_t rank));

// Appends: receive everybody's input(0) (rank r's into scratch(r)), and reduce them all, together
// with the own input(0), into output(0) in the canonical order.
void receive_and_reduce_canonically(const Shape& shape, std::vector<Step>& steps);

}  // namespace tutti::algorithms
