// The part of a call that does not depend on buffer addresses: plan, chunk extents, slicing. Made
// once per kind of call and cached, so that repeating a call is a look-up.
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
  const Plan* plan = nullptr;            // null: single rank, or the peer is not known yet
  const Algorithm* algorithm = nullptr;  // null for point-to-point calls and single ranks
  Signature signature;
  std::array<uint64_t, 2> signature_words = {};  // encoded
  uint64_t signature_bytes = 0;                  // bytes of the elements counted in the signature
  Reduction reduction;
  bool private_blocks = false;  // each rank knows only its own blocks
  Blocks input_blocks;          // v-variants, in elements as defined below
  Blocks output_blocks;
  // From here on an element is the operator's value: `width` elements of the dtype.
  uint64_t width = 1;
  uint64_t own_count = 0;     // v-variants: length of the buffer that is one block
  uint64_t input_count = 0;   // elements of the input
  uint64_t result_count = 0;  // elements of the output if it has a result
  int combined = 1;           // number of ranks whose inputs a result combines

  // Point-to-point calls only:
  int peer = 0;  // peer rank or kAnySource
  int tag = 0;   // tag or kAnyTag
  bool sends = false;
  bool may_be_shorter = false;  // receive: the message may be shorter than the buffer

  DType dtype = DType::u8;
  ReduceKernel kernel = nullptr;
  bool accumulates = false;  // in float, wider than the element type
  uint64_t element_bytes = 1;
  uint64_t accumulator_bytes = 1;  // per element, if it accumulates
  Slicing slicing;
  Moves moves;
  uint64_t scratch_bytes = 0;  // for one slice
  // Messages may be read in place. Not set for short point-to-point calls, whose send() returns
  // before the peer has called recv().
  bool lends = true;
  bool brief = false;    // a few kilobytes: negligible time once all ranks have arrived
  bool streams = false;  // results are too large for the cache: use non-temporal stores

  bool point_to_point() const { return signature.collective == Collective::send_recv; }
};

// Aliasing of the two buffers; beyond: a buffer exceeds the address space.
enum class Lie : uint8_t { apart, in_place, beyond };

inline Lie lie_of(const Request& request) {
  const auto in = reinterpret_cast<uintptr_t>(request.input.data);
  const auto out = reinterpret_cast<uintptr_t>(request.output.data);
  const uintptr_t in_end = in + request.input.bytes();
  const uintptr_t out_end = out + request.output.bytes();
  if (in_end < in || out_end < out) return Lie::beyond;
  return in == out || (in < out_end && out < in_end) ? Lie::in_place : Lie::apart;
}

// Compiles a collective call on `rank` of `size`. The request must be complete(). Null algorithm
// and plan: a single rank.
CompiledCall compiled_of(Request&& request, int rank, int size, const Algorithm* algorithm,
                         const Plan* plan);

// Fills in the members from `dtype` on, which follow from the plan and the call. `peer_is_near`: a
// message travels through shared memory.
void derive(CompiledCall& compiled, const Limits& limits, bool peer_is_near = true);

}  // namespace tutti
