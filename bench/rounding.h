// Test data whose reduction depends on the order of summation: floats of both signs and many
// magnitudes, some of which cancel. Elements of non-float types have arbitrary bits.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::bench {

// Fills the input as fill_pattern() (bench/pattern.h) does, with the same period.
void fill_rounding(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                   void* data);

// Returns the factor of rank `rank` in premul_sum: a whole number that is not a power of two.
double rounding_factor(int rank);

// Writes the result as fill_combined() does: the inputs of ranks 0 to combined - 1, reduced in the
// canonical order (Grade::canonical) in accumulators, and rounded once.
void fill_canonical(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                    uint64_t count, void* data);

// Returns true if the result may depend on the order of the reduction. Otherwise every order gives
// the result of fill_canonical().
bool order_matters(DType dtype, ReduceOp op);

// Returns the number of elements outside the rounding error bound, which allows one rounding per
// addition or multiplication, in the element type. Only valid if order_matters().
uint64_t count_outside_bound(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                             uint64_t count, const void* got);

}  // namespace tutti::bench
