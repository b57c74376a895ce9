// One function per algorithm: its row of the catalogue (collectives/program/algorithm.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti::algorithms {

// All of them (catalogue.cc), simplest first.
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

// Rounds of doubling until p ranks are covered: the logarithm to base 2, rounded up.
int32_t doublings(int32_t ranks);

// For Algorithm::supports.
std::string powers_of_two_only(const Shape& shape);

// All ranks but this one, the next one first.
std::vector<int32_t> others(const Shape& shape);

// Chunks first to first + count - 1, where chunk 0 follows the last one: at most two ranges.
RangeList around(Space space, int32_t first, int32_t count, int32_t chunks);

// Most distinct ranks that any rank sends to, for algorithms without a simple formula.
int32_t largest_fan_out(int32_t ranks,
                        const std::function<std::vector<Step>(int32_t ranks, int32_t rank)>& steps);

// fan_out(radix, ranks), which looks at every rank, is computed once for the programs of all of
// them that a thread makes one after another.
int32_t remembered(int32_t (*fan_out)(int32_t radix, int32_t ranks), int32_t radix, int32_t ranks);

// Appends the reduction of one chunk of every rank's into `result`, by the canonical tree. `of(r)`
// is where rank r's contribution lies: at most one of them is not in scratch. Partial sums
// overwrite those that are.
void reduce_canonically(int32_t ranks, const std::function<ChunkRange(int32_t rank)>& of,
                        ChunkRange result, std::vector<Step>& steps);

// A value to be reduced: it comes from `peer`, as `wire`; or, without a peer, it lies at `here`.
struct Contribution {
  int32_t peer = -1;
  Wire wire = Wire::element;
  ChunkRange here = {};
};

// Appends the reception of contributions 0 to count - 1 and their reduction into `result`, by the
// canonical tree; there is more than one. Every second message is reduced straight from where it
// arrives. `slot(0)` to `slot(slots_to_reduce(count) - 1)` are scratch for partial sums.
void receive_and_reduce_canonically(int32_t count, const std::function<Contribution(int32_t i)>& of,
                                    const std::function<ChunkRange(int32_t slot)>& slot,
                                    ChunkRange result, std::vector<Step>& steps);
int32_t slots_to_reduce(int32_t count);

}  // namespace tutti::algorithms
