// All-reduce in three phases: within groups of a layout, across them, within them; each by any
// algorithm of the catalogue.
#pragma once

#include <string_view>

#include "collectives/program/algorithm.h"

namespace tutti {

// "hierarchical(ring,recursive_doubling,ring)". `all_reduce` may be hierarchical itself: then it is
// among the groups of the layout's outer levels, and these phases are for the next level inside.
// Canonical where both reducing ones are (then groups need a power of two of ranks, all alike: the
// tree over a group is a part of the tree over all); else partial sums are rounded after the first
// phase, and all ranks have the same bits if `all_reduce` gives them. Throws
// Error(invalid_argument) for algorithms of other collectives.
Algorithm compose_hierarchical(const Algorithm& reduce_scatter, const Algorithm& all_reduce,
                               const Algorithm& all_gather);

// The composition that is named so, which it adds to the catalogue when it is new; null where the
// name does not have that form. Throws Error(invalid_argument) that lists the names there are, for
// parts that the catalogue does not have. Any thread.
const Algorithm* parse_hierarchical(std::string_view name);

}  // namespace tutti
