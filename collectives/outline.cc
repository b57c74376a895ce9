#include "collectives/outline.h"

namespace tutti {

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
  outline.chunks = signature.uneven
                       ? ChunkMap(plan, outline.input_blocks, outline.output_blocks,
                                  outline.own_count, outline.element_bytes)
                       : ChunkMap(plan, signature.count, outline.element_bytes);
  if (outline.point_to_point()) {
    outline.slicing = slice_p2p(signature.count, outline.element_bytes, limits);
    return;
  }
  const bool may_widen = outline.accumulates && plan.program.scratch_chunks > 0;
  outline.slicing = slice_collective(plan.collective, plan.program, outline.chunks.largest(),
                                     may_widen ? sizeof(float) : outline.element_bytes,
                                     outline.private_blocks, limits);
}

}  // namespace tutti
