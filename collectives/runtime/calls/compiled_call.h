// What stays the same when a call is made again with other buffers: the plan, where chunks lie, how
// they are cut into slices. Made once per kind of call and kept, so that making the call again is a
// look-up.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/reduce.h"
#include "collectives/program/algorithm.h"
#include "collectives/program/arithmetic.h"
#include "collectives/program/plan.h"
#include "collectives/program/slicing.h"
#include "collectives/reduction.h"
#include "collectives/request.h"
#include "collectives/runtime/calls/moves.h"
#include "collectives/runtime/calls/signature.h"

namespace tutti {

struct CompiledCall {
  const Plan* plan = nullptr;            // null: nobody to talk to, or nobody knows yet to whom
  const Algorithm* algorithm = nullptr;  // null for point-to-point calls, and alone
  Signature signature;
  std::array<uint64_t, 2> signature_words = {};  // encoded
  uint64_t signature_bytes = 0;                  // of the elements that it counts
  Reduction reduction;
  bool private_blocks = false;  // each rank knows its own blocks only
  Blocks input_blocks;          // of the v-variants, in elements as below
  Blocks output_blocks;
  // From here on elements are what the operator combines: `width` of the dtype's.
  uint64_t width = 1;
  uint64_t own_count = 0;     // v-variants: of the buffer that is one block
  uint64_t input_count = 0;   // elements of the input,
  uint64_t result_count = 0;  // and of the output where it has a result,
  int combined = 1;           // which combines so many ranks' inputs

  // Of point-to-point calls:
  int peer = 0;  // the other rank, or kAnySource
  int tag = 0;   // or kAnyTag
  bool sends = false;
  bool may_be_shorter = false;  // a receive, than its buffer

  DType dtype = DType::u8;
  ReduceKernel kernel = nullptr;
  bool accumulates = false;  // in float, which is not the element type
  uint64_t element_bytes = 1;
  uint64_t accumulator_bytes = 1;  // of an element, where it accumulates
  Slicing slicing;
  Moves moves;
  uint64_t scratch_bytes = 0;  // for one slice
  // Whether messages may be read where they lie. Not short point-to-point ones: send() returns
  // before the other rank has called recv().
  bool lends = true;
  bool brief = false;    // a few kilobytes: it takes no time worth noting once all are there
  bool streams = false;  // results are too large to be found in a cache later

  bool point_to_point() const { return signature.collective == Collective::send_recv; }
};

// How the two buffers lie in memory; beyond: one of them leaves the address space.
enum class Lie : uint8_t { apart, in_place, beyond };

inline Lie lie_of(const Request& request) {
  const auto in = reinterpret_cast<uintptr_t>(request.input.data);
  const auto out = reinterpret_cast<uintptr_t>(request.output.data);
  const uintptr_t in_end = in + request.input.bytes();
  const uintptr_t out_end = out + request.output.bytes();
  if (in_end < in || out_end < out) return Lie::beyond;
  return in == out || (in < out_end && out < in_end) ? Lie::in_place : Lie::apart;
}

// A collective call on `rank` of `size`: what the request says, which must be complete(). Null
// algorithm and plan: the rank is alone.
CompiledCall compiled_of(Request&& request, int rank, int size, const Algorithm* algorithm,
                         const Plan* plan);

// Fills in what follows from the plan and from what the call is: from `dtype` on. `peer_is_near`:
// of messages, whether they go through shared memory.
void derive(CompiledCall& compiled, const Limits& limits, bool peer_is_near = true);

}  // namespace tutti
