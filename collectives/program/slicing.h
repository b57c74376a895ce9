// Divides a call into slices. The result depends only on values that are the same on all ranks, so
// that sender and receiver agree without communication. The executor and the cost model use it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/program/program.h"
#include "transport/limits.h"

namespace tutti {

struct Slicing {
  uint64_t elements = 1;  // elements per chunk in one slice
  uint32_t slices = 0;
  int lanes = 1;   // slice s runs on lane s mod lanes
  int credit = 1;  // slots that one connection may occupy
};

// Returns the bytes per element that a slice must have room for: `accumulator` if it is not 0 and
// the program has scratch, which holds accumulators; otherwise `element`. An `accumulator` of 0
// means that sums have the element type.
inline uint64_t widest_form(const Program& program, uint64_t element, uint64_t accumulator) {
  return accumulator > 0 && program.scratch_chunks > 0 ? accumulator : element;
}

// Slices a collective. `largest`: elements of the largest chunk. `element_bytes`: result of
// widest_form(). With `private_blocks`, ranks may pass different values of `largest`: the slice
// size does not depend on it, only the number of slices does, and slice 0 sends a message even
// without data.
Slicing slice_collective(Collective collective, const Program& program, uint64_t largest,
                         uint64_t element_bytes, bool private_blocks, const Limits& limits);
// Slices a point-to-point call, which has one lane. `longest`: limits between the two ranks.
Slicing slice_p2p(uint64_t count, uint64_t element_bytes, const MessageLimits& longest);

}  // namespace tutti
