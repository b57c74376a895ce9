// Programs made of programs: the ranks and chunks of a small one are mapped into a larger one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti::algorithms {

// Where a program (the inner one) goes in another one (the outer one). Size classes are kept: inner
// class i is outer classes (of the place where it goes) i * scale to i * scale + scale - 1.
struct Embedding {
  struct Place {
    Space space;
    int32_t first;  // outer chunk of inner chunk 0
  };

  std::function<int32_t(int32_t rank)> rank_of;  // the outer rank of an inner one
  Place input;
  Place output;
  Place scratch;
  int32_t scale = 1;  // outer chunks of one inner chunk
  int32_t inner_classes =
      1;  // size classes of the programs: after so many inner chunks of scratch,
  int32_t outer_classes = 1;  // the next one is so many outer chunks further

  RangeList embed(const RangeList& ranges) const;
  Step embed(Step step) const;
  // Outer scratch chunks that so many inner ones need.
  int32_t scratch_chunks(const Program& inner) const;
};

// Appends the inner program's steps; copies of chunks onto themselves are left out.
void append_embedded(const Program& inner, const Embedding& embedding, std::vector<Step>& steps);

// A rank's program for an all_reduce whose inputs are accumulators, in scratch when embedded:
// partial sums of another program. What the algorithm may send as elements, since it is an input,
// is not rounded either.
Program on_partial_sums(const Algorithm& all_reduce, const Shape& shape);

}  // namespace tutti::algorithms
