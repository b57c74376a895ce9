#include "collectives/runtime/outline.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "collectives/program/chunk_map.h"

namespace tutti {

namespace {

// Two ranks of 8 MiB in, 8 MiB out are what a last-level cache of 32 MiB holds.
constexpr uint64_t kLeastStreamed = 8 << 20;

constexpr uint64_t kMostBrief = 4 << 10;

uint64_t slices_of(const ChunkMap& chunks, const Outline& outline) {
  return (chunks.largest() + outline.slicing.elements - 1) / outline.slicing.elements;
}

}  // namespace

void derive(Outline& outline, const Limits& limits) {
  const Signature& signature = outline.signature;
  outline.signature_words = encode(signature);
  outline.dtype = signature.dtype;
  outline.element_bytes = size_of(signature.dtype);
  const bool by_kernel = reduces(signature.collective) && signature.op != ReduceOp::user;
  outline.kernel = by_kernel ? reduce_kernel(signature.dtype, signature.op) : nullptr;
  outline.accumulates = by_kernel && accumulator_of(signature.dtype) != signature.dtype;
  if (outline.plan == nullptr) return;

  const Plan& plan = *outline.plan;
  const ChunkMap chunks = signature.uneven
                              ? ChunkMap(plan, outline.input_blocks, outline.output_blocks,
                                         outline.own_count, outline.element_bytes)
                              : ChunkMap(plan, signature.count, outline.element_bytes);
  const Program& program = plan.program;
  const uint64_t widest =
      outline.accumulates && program.scratch_chunks > 0 ? sizeof(float) : outline.element_bytes;
  outline.slicing = outline.point_to_point()
                        ? slice_p2p(signature.count, outline.element_bytes, limits)
                        : slice_collective(plan.collective, program, chunks.largest(), widest,
                                           outline.private_blocks, limits);
  if (slices_of(chunks, outline) > UINT32_MAX) {
    throw Error(
        ErrorCode::unsupported,
        cat(to_string(signature), " needs more than ", UINT32_MAX, " messages between two ranks"),
        {.remedy = "make several calls, each on a part of the buffers"});
  }
  outline.brief =
      std::max(outline.input_count, outline.result_count) * outline.element_bytes <= kMostBrief;
  outline.streams = outline.result_count * outline.element_bytes >= kLeastStreamed;
  outline.lends = !outline.point_to_point() ||
                  outline.slicing.slices > static_cast<uint32_t>(outline.slicing.credit);
  const uint64_t scratch_chunk = std::min(outline.slicing.elements, chunks.largest()) * widest;
  outline.scratch_bytes = scratch_chunk * static_cast<uint64_t>(program.scratch_chunks);
  outline.moves.make(plan, chunks, outline.element_bytes, outline.accumulates, scratch_chunk,
                     outline.signature_words, outline.private_blocks);
}

}  // namespace tutti
