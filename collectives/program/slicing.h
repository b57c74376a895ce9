// How a call is cut into slices: a pure function of what all ranks know alike, so that sender and
// receiver cut alike without a word. Read by the executor, and by the cost model.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/program/program.h"
#include "transport/limits.h"

namespace tutti {

struct Slicing {
  uint64_t elements = 1;  // of each chunk in one slice
  uint32_t slices = 0;
  int lanes = 1;   // slice s runs on lane s mod lanes
  int credit = 1;  // slots that one connection may hold
};

// Bytes of the widest form that elements of the program's calls have: their own, or in scratch that
// of their accumulators (0: they have none).
inline uint64_t widest_form(const Program& program, uint64_t element, uint64_t accumulator) {
  return accumulator > 0 && program.scratch_chunks > 0 ? accumulator : element;
}

// `largest`: elements of the largest chunk. `element_bytes`: the widest form in which elements of
// this call travel. With `private_blocks` this rank knows only its own blocks: then the cut does
// not depend on `largest`, but the number of slices does, and slice 0 has something to say without
// data.
Slicing slice_collective(Collective collective, const Program& program, uint64_t largest,
                         uint64_t element_bytes, bool private_blocks, const Limits& limits);
// Point-to-point calls have one lane. `longest`: between their two ranks.
Slicing slice_p2p(uint64_t count, uint64_t element_bytes, const MessageLimits& longest);

}  // namespace tutti
