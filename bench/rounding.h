// Test data whose result depends on the order of summation: floats of both signs and many
// magnitudes, some of which cancel. Other types have arbitrary bits.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::bench {

// Same as fill_pattern() (bench/pattern.h), with the same period.
void fill_rounding(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                   void* data);

// Factor of rank `rank` in premul_sum: a whole number that is not a power of two.
double rounding_factor(int rank);

// Same as fill_combined(): the inputs of ranks 0 to combined - 1, reduced in the canonical order
// (Grade::canonical) in accumulators, and rounded once.
void fill_canonical(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                    uint64_t count, void* data);

// Returns true if the result may depend on the order; otherwise it is that of fill_canonical().
bool order_matters(DType dtype, ReduceOp op);

// Number of elements outside the rounding error bound: one rounding per addition or multiplication,
// in the element type. Only if order_matters().
uint64_t count_outside_bound(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                             uint64_t count, const void* got);

}  // namespace tutti::bench
