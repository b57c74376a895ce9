// Composition of programs: an inner program's ranks and chunks are mapped into an outer program.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti::algorithms {

// Maps an inner program's ranks and chunks to ranks and chunks of an outer program. Size classes
// are preserved: inner class i becomes outer classes i * scale .. i * scale + scale - 1 of the
// mapped buffer.
struct Embedding {
  struct Place {
    Space space;
    int32_t first;  // outer chunk of inner chunk 0
  };

  std::function<int32_t(int32_t rank)> rank_of;  // outer rank of an inner rank
  Place input;
  Place output;
  Place scratch;
  int32_t scale = 1;  // outer chunks per inner chunk
  // Number of size classes of each program. In scratch, inner chunk `inner_classes` is located
  // `outer_classes` outer chunks after inner chunk 0.
  int32_t inner_classes = 1;
  int32_t outer_classes = 1;

  RangeList embed(const RangeList& ranges) const;
  Step embed(Step step) const;
  // Returns the number of outer scratch chunks that the inner program's scratch occupies.
  int32_t scratch_chunks(const Program& inner) const;
};

// Appends the inner program's steps, skipping copies of a chunk onto itself.
void append_embedded(const Program& inner, const Embedding& embedding, std::vector<Step>& steps);

// Returns a rank's program for an all_reduce whose inputs are partial sums of another program, held
// as accumulators (in scratch when embedded). Messages that would carry unreduced input as elements
// carry accumulators instead, so that partial sums are not rounded.
Program on_partial_sums(const Algorithm& all_reduce, const Shape& shape);

}  // namespace tutti::algorithms
