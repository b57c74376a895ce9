#include "collectives/runtime/calls/compiled_call.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "collectives/program/chunk_map.h"

namespace tutti {

namespace {

// 8 MiB of input and output on two ranks fill a last-level cache of 32 MiB.
constexpr uint64_t kLeastStreamed = 8 << 20;

constexpr uint64_t kMostBrief = 4 << 10;

Signature signature_of(const Request& request, uint64_t algorithm) {
  Signature signature{.collective = request.collective,
                      .dtype = request.dtype(),
                      .op = request.op.op,
                      .uneven = request.uneven,
                      .algorithm = algorithm,
                      .count = request.count};
  if (has_root(request.collective)) signature.root = request.root;
  if (request.uneven && !request.blocks_are_private()) {
    const Blocks& blocks =
        request.input_blocks.empty() ? request.output_blocks : request.input_blocks;
    signature.root = static_cast<int32_t>(blocks.hash() ^ request.tail);
  } else if (!request.uneven) {
    signature.root |= static_cast<int32_t>(request.tail) << kRootBits;
  }
  return signature;
}

// Returns the number of ranks whose inputs the result on `rank` combines; 0 on rank 0 of an exscan,
// which has no result.
int combined_ranks(const Request& request, int rank, int size) {
  switch (request.collective) {
    case Collective::scan:
      return rank + 1;
    case Collective::exscan:
      return rank;
    default:
      return size;
  }
}

Blocks in_units(Blocks&& blocks, uint64_t width) {
  if (width == 1) return std::move(blocks);
  for (uint64_t& count : blocks.counts) count /= width;
  for (uint64_t& place : blocks.displacements) place /= width;
  return std::move(blocks);
}

// Throws Error(unsupported) if a message has no room for one element of each of its chunks, because
// the elements are wide, or a named algorithm sends the chunks of thousands of ranks at once.
void check_width(const CompiledCall& compiled, uint64_t widest, const Limits& limits) {
  const auto chunks = static_cast<uint64_t>(compiled.plan->program.chunks_per_message);
  const size_t longest = compiled.point_to_point()
                             ? std::min(limits.near.p2p_bytes, limits.far.p2p_bytes)
                             : limits.collective_bytes();
  if (chunks * widest <= longest) return;
  constexpr uint64_t kLine = 64;
  throw Error(ErrorCode::unsupported,
              cat(to_string(compiled.signature), ": values of ", widest,
                  " bytes exceed the longest message of ", longest,
                  chunks > 1 ? cat(", which carries ", chunks, " of them") : ""),
              {.remedy = widest > kLine ? "gather the values, and combine them on each rank"
                                        : "use algorithm auto"});
}

uint64_t slices_of(const ChunkMap& chunks, const CompiledCall& compiled) {
  return (chunks.largest() + compiled.slicing.elements - 1) / compiled.slicing.elements;
}

}  // namespace

CompiledCall compiled_of(Request&& request, int rank, int size, const Algorithm* algorithm,
                         const Plan* plan) {
  CompiledCall compiled;
  compiled.signature = signature_of(request, algorithm != nullptr ? algorithm->id : 0);
  compiled.private_blocks = request.blocks_are_private();
  compiled.combined = combined_ranks(request, rank, size);
  const uint64_t width = compiled.width = request.op.width();
  compiled.input_count = request.input.count / width;
  const bool has_result =
      compiled.combined > 0 && (request.collective != Collective::reduce || rank == request.root);
  compiled.result_count = has_result ? request.output.count / width : 0;
  if (request.uneven) {
    compiled.own_count =
        (has_input_blocks(request.collective) ? request.output.count : request.input.count) / width;
    if (request.collective == Collective::all_to_all) compiled.own_count = 0;
  }
  compiled.algorithm = algorithm;
  compiled.plan = plan;
  compiled.reduction = std::move(request.op);
  compiled.input_blocks = in_units(std::move(request.input_blocks), width);
  compiled.output_blocks = in_units(std::move(request.output_blocks), width);
  return compiled;
}

void derive(CompiledCall& compiled, const Limits& limits, bool peer_is_near) {
  const Signature& signature = compiled.signature;
  compiled.signature_words = encode(signature);
  compiled.signature_bytes = signature.count * size_of(signature.dtype);
  compiled.dtype = signature.dtype;
  compiled.element_bytes = size_of(signature.dtype) * compiled.width;
  const bool by_kernel = reduces(signature.collective) && signature.op != ReduceOp::user;
  compiled.kernel = by_kernel ? reduce_kernel(signature.dtype, signature.op) : nullptr;
  compiled.accumulates = by_kernel && accumulator_of(signature.dtype) != signature.dtype;
  compiled.accumulator_bytes = accumulator_bytes(signature.dtype);
  if (compiled.plan == nullptr) return;

  const Plan& plan = *compiled.plan;
  const uint64_t count = signature.count / compiled.width;
  const Program& program = plan.program;
  const uint64_t widest = widest_form(program, compiled.element_bytes,
                                      compiled.accumulates ? compiled.accumulator_bytes : 0);
  check_width(compiled, widest, limits);
  const ChunkMap chunks = signature.uneven
                              ? ChunkMap(plan, compiled.input_blocks, compiled.output_blocks,
                                         compiled.own_count, compiled.element_bytes)
                              : ChunkMap(plan, count, compiled.element_bytes);
  compiled.slicing =
      compiled.point_to_point()
          ? slice_p2p(count, compiled.element_bytes, peer_is_near ? limits.near : limits.far)
          : slice_collective(plan.collective, program, chunks.largest(), widest,
                             compiled.private_blocks, limits);
  if (slices_of(chunks, compiled) > UINT32_MAX) {
    throw Error(
        ErrorCode::unsupported,
        cat(to_string(signature), " needs more than ", UINT32_MAX, " messages between two ranks"),
        {.remedy = "make several calls, each on a part of the buffers"});
  }
  compiled.brief =
      std::max(compiled.input_count, compiled.result_count) * compiled.element_bytes <= kMostBrief;
  compiled.streams = compiled.result_count * compiled.element_bytes >= kLeastStreamed;
  compiled.lends = !compiled.point_to_point() ||
                   compiled.slicing.slices > static_cast<uint32_t>(compiled.slicing.credit);
  const uint64_t scratch_chunk = std::min(compiled.slicing.elements, chunks.largest()) * widest;
  compiled.scratch_bytes = scratch_chunk * static_cast<uint64_t>(program.scratch_chunks);
  compiled.bound_steps.make(plan, chunks,
                            {.element = compiled.element_bytes,
                             .accumulator = compiled.accumulates ? compiled.accumulator_bytes : 0,
                             .scratch_chunk = scratch_chunk},
                            compiled.signature_words, compiled.private_blocks);
}

}  // namespace tutti
