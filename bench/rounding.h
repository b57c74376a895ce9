// Test data that shows in which order it was reduced: floats of both signs and of many magnitudes,
// some of which cancel, so that another order of summation gives other bits. Other types have any
// bits.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::bench {

// As fill_pattern() (bench/pattern.h), with the same period.
void fill_rounding(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                   void* data);

// premul_sum: rank `rank`'s factor. No power of two; whole.
double rounding_factor(int rank);

// As fill_combined(): the inputs of ranks 0 to combined - 1, combined in the canonical order
// (Grade::canonical) in accumulators, and rounded once.
void fill_canonical(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                    uint64_t count, void* data);

// Whether the result may depend on the order: where not, it is fill_canonical()'s.
bool order_matters(DType dtype, ReduceOp op);

// Elements farther from the exact combination than roundings explain: one of each addition or
// multiplication, in the type of the elements. For what order_matters() is true of.
uint64_t count_outside_bound(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                             uint64_t count, const void* got);

}  // namespace tutti::bench
