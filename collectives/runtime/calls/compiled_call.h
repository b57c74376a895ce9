// The part of a call that does not depend on buffer addresses: plan, chunk extents, slicing. It is
// made once per kind of call and cached, so that repeating a call is a look-up.
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
#include "collectives/runtime/calls/bound_steps.h"
#include "collectives/runtime/calls/signature.h"

namespace tutti {

struct CompiledCall {
  const Plan* plan = nullptr;            // null: no peer, or the peer is not known yet
  const Algorithm* algorithm = nullptr;  // null for point-to-point calls and single ranks
  Signature signature;
  std::array<uint64_t, 2> signature_words = {};  // the encoded Signature
  uint64_t signature_bytes = 0;  // size in bytes of the elements counted in the signature
  Reduction reduction;
  bool private_blocks = false;  // Request::blocks_are_private()
  Blocks input_blocks;          // for v-variants
  Blocks output_blocks;
  // In the blocks above and the members below, an element is one value of the operator, which is
  // `width` elements of the dtype.
  uint64_t width = 1;
  uint64_t own_count = 0;     // for v-variants: length of the buffer that is one block
  uint64_t input_count = 0;   // number of elements of the input
  uint64_t result_count = 0;  // number of elements of the output; 0 without a result
  int combined = 1;           // number of ranks whose inputs a result combines

  // Only for point-to-point calls:
  int peer = 0;  // peer rank or kAnySource
  int tag = 0;   // tag or kAnyTag
  bool sends = false;
  bool may_be_shorter = false;  // receive: the message may be shorter than the buffer

  DType dtype = DType::u8;
  ReduceKernel kernel = nullptr;
  bool accumulates = false;  // true: computes in float, which is wider than the element type
  uint64_t element_bytes = 1;
  uint64_t accumulator_bytes = 1;  // size of an accumulator; used if `accumulates`
  Slicing slicing;
  BoundSteps bound_steps;
  uint64_t scratch_bytes = 0;  // bytes for one slice
  // True if messages may be read in place. It is false for short point-to-point calls, whose send()
  // returns before the peer has called recv().
  bool lends = true;
  // True for a call on a few kilobytes, which takes negligible time once all ranks have arrived.
  bool brief = false;
  // True if results are too large for the cache, so that non-temporal stores are used.
  bool streams = false;

  bool point_to_point() const { return signature.collective == Collective::send_recv; }
};

// Location of the two buffers relative to each other: without overlap (`apart`), overlapping
// (`in_place`), or invalid because one exceeds the address space (`beyond`).
enum class Aliasing : uint8_t { apart, in_place, beyond };

inline Aliasing aliasing_of(const Request& request) {
  const auto in = reinterpret_cast<uintptr_t>(request.input.data);
  const auto out = reinterpret_cast<uintptr_t>(request.output.data);
  const uintptr_t in_end = in + request.input.bytes();
  const uintptr_t out_end = out + request.output.bytes();
  if (in_end < in || out_end < out) return Aliasing::beyond;
  return in == out || (in < out_end && out < in_end) ? Aliasing::in_place : Aliasing::apart;
}

// Returns a collective call on `rank` of `size`, without the members that derive() computes. The
// request must be complete(). Algorithm and plan are null for a single rank.
CompiledCall compiled_of(Request&& request, int rank, int size, const Algorithm* algorithm,
                         const Plan* plan);

// Computes `signature_words`, `signature_bytes` and the members from `dtype` to the end from the
// other members. If the plan is null, it skips the members from `slicing` to the end. Throws
// Error(unsupported) if an element is too wide for the transport's messages, or the call needs too
// many messages. `peer_is_near`: true if a point-to-point message travels through shared memory.
void derive(CompiledCall& compiled, const Limits& limits, bool peer_is_near = true);

}  // namespace tutti
