// Bucket all-reduce on a two-dimensional torus: rings along the rows, then along the columns.
//
//   p = 12:   0 →  1 →  2 →  3 ↩      1. reduce-scatter along each row: a rank gets a quarter
//             ↓    ↓    ↓    ↓        2. all-reduce of each quarter along its column
//             4 →  5 →  6 →  7 ↩      3. all-gather along each row
//             ↓    ↓    ↓    ↓
//             8 →  9 → 10 → 11 ↩
//
// Every rank sends 2(p-1)/p of the buffer, as in a ring, in 2(rows + columns - 2) rounds instead of
// 2(p-1). Rows and columns are the two factors of p that are closest to each other.
//
// P. Sack, W. Gropp: Collective Algorithms for Multiported Torus Networks. TOPC 1(2), 2015.

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/hierarchical.h"

namespace tutti::algorithms {

namespace {

// Returns the number of rows: the largest divisor of `ranks` that does not exceed the square root.
int32_t rows_of(int32_t ranks) {
  int32_t rows = 1;
  for (int32_t divisor = 2; divisor * divisor <= ranks; ++divisor) {
    if (ranks % divisor == 0) rows = divisor;
  }
  return rows;
}

Program emit_torus_bucket(const Algorithm& rows_and_columns, Shape shape) {
  if (shape.ranks > 1) {
    shape.layout = Layout::equal(shape.ranks, shape.ranks / rows_of(shape.ranks));
    return rows_and_columns.emit(shape);
  }
  Program program;
  program.steps = {copy({input(0)}, {output(0)})};
  return program;
}

}  // namespace

Algorithm all_reduce_torus_bucket() {
  const Algorithm rows_and_columns =
      compose_hierarchical(reduce_scatter_ring(), all_reduce_ring(), all_gather_ring());
  return {.collective = Collective::all_reduce,
          .name = "torus_bucket",
          .source = "Sack, Gropp, TOPC 2015",
          .grade = rows_and_columns.grade,
          .emit = [=](const Shape& shape) { return emit_torus_bucket(rows_and_columns, shape); },
          .supports =
              [](const Shape& shape) {
                const bool fits = shape.ranks == 1 || rows_of(shape.ranks) > 1;
                return fits ? "" : "a prime number of ranks does not form a torus";
              }};
}

}  // namespace tutti::algorithms
