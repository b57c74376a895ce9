// Test data whose reduction is exact in every element type, whatever the order: what comes back can
// be compared bit for bit. (bench/rounding.h has the opposite.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::bench {

// Inputs repeat after so many elements.
inline constexpr uint64_t kPatternPeriod = 8191;  // a prime: no chunk or slice has this size

// Fills `count` elements with rank `rank`'s input, the first of them being element `first`. Small
// whole numbers, so that any op over up to `ranks` ranks is exact; values with many ties and an
// index of each rank's own for pairs; any bits for ReduceOp::user.
void fill_pattern(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                  void* data);

// The combination of the inputs of ranks 0 to combined - 1 (avg: divided by `combined`), for an
// input of a call among `ranks` ranks. `combined` is at least 1.
void fill_combined(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                   uint64_t count, void* data);

// Of all ranks.
inline void fill_expected(DType dtype, ReduceOp op, int ranks, uint64_t first, uint64_t count,
                          void* data) {
  fill_combined(dtype, op, ranks, ranks, first, count, data);
}

// premul_sum: rank `rank`'s factor.
double pattern_factor(int rank);

// The operator behind ReduceOp::user: elements are maps x -> m x + b (m and b: the two halves of
// their bits), combined by composition. Associative, but it does not commute; for every type.
void compose(void* dst, const void* a, const void* b, uint64_t count, DType dtype);

// Writes `value` (which the type holds exactly, or rounds as `avg` does) as the element at `index`;
// of a pair, the value.
void store(DType dtype, void* data, uint64_t index, double value);

// Elements whose bytes differ.
uint64_t count_wrong(DType dtype, const void* got, const void* expected, uint64_t count);

// A number that looks random, from two.
uint64_t hash(uint64_t a, uint64_t b);

// data[0 .. count): elements first, first + 1, ... of a sequence with the period kPatternPeriod;
// write(index, n, to) writes n of them from `index` on, within one period. `size`: bytes each.
using WriteElements = std::function<void(uint64_t index, uint64_t n, void* to)>;
void fill_periodically(uint64_t size, uint64_t first, uint64_t count, void* data,
                       const WriteElements& write);

}  // namespace tutti::bench
