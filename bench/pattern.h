// Test data whose reduction is exact in every element type, whatever the order: what comes back can
// be compared bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::bench {

// Element `index` of rank `rank`'s input, as a number that `dtype` holds exactly. Small enough that
// the sum (or product) over `ranks` ranks is exact too. Repeats after kPatternPeriod elements.
inline constexpr uint64_t kPatternPeriod = 8191;  // a prime: no chunk or slice has this size
double pattern_value(DType dtype, ReduceOp op, int ranks, int rank, uint64_t index);

// The reduction over all ranks, as it must come back.
double expected_value(DType dtype, ReduceOp op, int ranks, uint64_t index);

// Writes `value` (which the type holds exactly, or rounds as `avg` does) as the element at `index`.
void store(DType dtype, void* data, uint64_t index, double value);

// Fills `count` elements with rank `rank`'s pattern, the first of them being element `first`.
void fill_pattern(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                  void* data);
void fill_expected(DType dtype, ReduceOp op, int ranks, uint64_t first, uint64_t count, void* data);

// Elements whose bytes differ.
uint64_t count_wrong(DType dtype, const void* got, const void* expected, uint64_t count);

}  // namespace tutti::bench
