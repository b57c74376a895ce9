// All-reduce in three phases: reduce-scatter within the groups of a layout, all-reduce across
// groups, all-gather within groups. Each phase is any algorithm of the catalogue.
#pragma once

#include <string_view>

#include "collectives/program/algorithm.h"

namespace tutti {

// Returns the composition, for instance "hierarchical(ring,recursive_doubling,ring)". `all_reduce`
// may itself be hierarchical: it then spans the groups of the layout's outer levels, and the other
// two phases run on the next inner level.
//
// If both reducing phases are canonical, the composition is canonical. It then supports only groups
// whose sizes are equal powers of two, so that the tree over a group is a subtree of the tree over
// all ranks. Otherwise partial sums are rounded after the first phase. All ranks then get the same
// bits if they do with `all_reduce` alone.
//
// Throws Error(invalid_argument) if an algorithm is for another collective than its phase.
Algorithm compose_hierarchical(const Algorithm& reduce_scatter, const Algorithm& all_reduce,
                               const Algorithm& all_gather);

// Returns the composition with this name and adds it to the catalogue if it is new. Returns null if
// the name does not have the form "hierarchical(A,B,C)". Throws Error(invalid_argument), which
// lists the known names, if A, B or C is not in the catalogue. Thread-safe.
const Algorithm* parse_hierarchical(std::string_view name);

}  // namespace tutti
