// One function per algorithm. Each returns the algorithm's row of the catalogue
// (collectives/program/algorithm.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti::algorithms {

// Returns every built-in algorithm (catalogue.cc), the simplest first.
std::vector<Algorithm> built_in();

Algorithm all_reduce_naive();
Algorithm all_reduce_one_shot();
Algorithm all_reduce_two_shot();
Algorithm all_reduce_parameter_server();
Algorithm all_reduce_ring();
Algorithm all_reduce_ring_bidirectional();
Algorithm all_reduce_torus_bucket();
Algorithm all_reduce_double_binary_tree();
Algorithm all_reduce_knomial(int32_t radix);
Algorithm all_reduce_recursive_doubling();
Algorithm all_reduce_recursive_multiplying(int32_t radix);
Algorithm all_reduce_halving_doubling();
Algorithm all_reduce_circulant();
Algorithm all_reduce_swing();
Algorithm all_reduce_hierarchical();
Algorithm all_gather_ring();
Algorithm all_gather_all_pairs();
Algorithm all_gather_bruck();
Algorithm all_gather_recursive_doubling();
Algorithm all_gather_pat();
Algorithm all_gather_neighbour_exchange();
Algorithm all_gather_hierarchical();
Algorithm reduce_scatter_ring();
Algorithm reduce_scatter_all_pairs();
Algorithm reduce_scatter_pairwise();
Algorithm reduce_scatter_recursive_halving();
Algorithm reduce_scatter_circulant();
Algorithm reduce_scatter_pat();
Algorithm reduce_scatter_hierarchical();
Algorithm broadcast_linear();
Algorithm broadcast_knomial(int32_t radix);
Algorithm broadcast_chain(int32_t chunks);
Algorithm broadcast_scatter_all_gather();
Algorithm broadcast_double_tree();
Algorithm broadcast_hierarchical();
Algorithm reduce_linear();
Algorithm reduce_knomial(int32_t radix);
Algorithm reduce_chain(int32_t chunks);
Algorithm reduce_two_shot();
Algorithm reduce_scatter_gather();
Algorithm reduce_double_tree();
Algorithm reduce_hierarchical();
Algorithm gather_linear();
Algorithm gather_binomial();
Algorithm scatter_linear();
Algorithm scatter_binomial();
Algorithm all_to_all_linear();
Algorithm all_to_all_bruck();
Algorithm all_to_all_hierarchical();
Algorithm all_to_all_leaders();
Algorithm scan_recursive_doubling();
Algorithm scan_chain();
Algorithm exscan_recursive_doubling();
Algorithm exscan_chain();
Algorithm barrier_dissemination(int32_t radix);

// Returns ceil(log2(ranks)): the rounds of doubling that reach all ranks.
int32_t doublings(int32_t ranks);

// Implements Algorithm::supports for algorithms that need the number of ranks to be a power of two.
std::string powers_of_two_only(const Shape& shape);

// Returns all ranks except shape.rank, starting with the next rank and wrapping around.
std::vector<int32_t> others(const Shape& shape);

// Returns `count` chunks from `first` on, modulo `chunks`, as at most two ranges.
RangeList around(Space space, int32_t first, int32_t count, int32_t chunks);

// Returns the largest number of distinct ranks that any rank sends to. It generates the programs of
// all ranks, for algorithms without a closed formula.
int32_t largest_fan_out(int32_t ranks,
                        const std::function<std::vector<Step>(int32_t ranks, int32_t rank)>& steps);

// Returns fan_out(radix, ranks). Each thread caches its last result, because fan_out() generates
// the messages of every rank, and each rank's program contains the result.
int32_t remembered(int32_t (*fan_out)(int32_t radix, int32_t ranks), int32_t radix, int32_t ranks);

// Appends local steps that reduce one chunk of each rank into `result` by the canonical tree. of(r)
// is the location of rank r's contribution; at most one contribution is outside scratch. Partial
// sums overwrite contributions in scratch.
void reduce_canonically(int32_t ranks, const std::function<ChunkRange(int32_t rank)>& of,
                        ChunkRange result, std::vector<Step>& steps);

// One operand of a reduction. It arrives from `peer` in the format `wire`, or is local at `here` if
// peer is -1.
struct Contribution {
  int32_t peer = -1;
  Wire wire = Wire::element;
  ChunkRange here = {};
};

// Appends steps that receive contributions 0 .. count - 1 (count > 1) and reduce them into `result`
// by the canonical tree. Every second message is reduced directly from the receive slot. `slot(0)`
// .. `slot(slots_to_reduce(count) - 1)` are scratch chunks for partial sums.
void receive_and_reduce_canonically(int32_t count, const std::function<Contribution(int32_t i)>& of,
                                    const std::function<ChunkRange(int32_t slot)>& slot,
                                    ChunkRange result, std::vector<Step>& steps);
int32_t slots_to_reduce(int32_t count);

}  // namespace tutti::algorithms
