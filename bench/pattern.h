// Test data whose reduction is exact in every element type and independent of the order, so that
// results can be compared bit for bit. (bench/rounding.h has data whose result depends on the
// order.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::bench {

// Number of elements after which the inputs repeat.
inline constexpr uint64_t kPatternPeriod = 8191;  // a prime: no chunk or slice has this size

// Fills `count` elements with rank `rank`'s input, starting at element `first`. Inputs are small
// whole numbers, so that any op over at most `ranks` ranks is exact; pairs have values with many
// ties and an index that differs between ranks; ReduceOp::user has arbitrary bits.
void fill_pattern(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                  void* data);

// Reduces the inputs that ranks 0 to combined - 1 have in a call among `ranks` ranks, and writes
// `count` elements of the result, starting at element `first`. avg divides by `combined`, which
// must be at least 1.
void fill_combined(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                   uint64_t count, void* data);

// Writes the reduction of the inputs of all ranks.
inline void fill_expected(DType dtype, ReduceOp op, int ranks, uint64_t first, uint64_t count,
                          void* data) {
  fill_combined(dtype, op, ranks, ranks, first, count, data);
}

// Returns the factor of rank `rank` in premul_sum.
double pattern_factor(int rank);

// Implements ReduceOp::user: elements are maps x -> m x + b (m and b are the two halves of their
// bits), combined by composition. The operator is associative, but not commutative, for every type.
void compose(void* dst, const void* a, const void* b, uint64_t count, DType dtype);

// Writes `value`, rounded to the type as `avg` does, to the element at `index` (for pairs: to the
// element's value).
void store(DType dtype, void* data, uint64_t index, double value);

// Returns the number of elements whose bytes differ.
uint64_t count_wrong(DType dtype, const void* got, const void* expected, uint64_t count);

// Returns a hash of two numbers.
uint64_t hash(uint64_t a, uint64_t b);

// Function that writes elements index ... index + n - 1 of a sequence to `to`. fill_periodically()
// calls it to fill data[0 .. count) with elements first, first + 1, ... of a sequence with period
// kPatternPeriod; each call is within one period. `size`: bytes per element.
using WriteElements = std::function<void(uint64_t index, uint64_t n, void* to)>;
void fill_periodically(uint64_t size, uint64_t first, uint64_t count, void* data,
                       const WriteElements& write);

}  // namespace tutti::bench
