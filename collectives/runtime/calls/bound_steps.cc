#include "collectives/runtime/calls/bound_steps.h"

#include "collectives/runtime/calls/signature.h"

namespace tutti {

namespace {

size_t chunks_in(const RangeList& ranges) {
  size_t chunks = 0;
  for (const ChunkRange& range : ranges) chunks += static_cast<size_t>(range.count);
  return chunks;
}

uint64_t elements_in(std::span<const Piece> pieces) {
  uint64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.length;
  return elements;
}

// Marks the sends whose payload may be lent, which means that the reader reads it in place. A lent
// send completes only when the reader has read. So if another step waits for the send, it is lent
// only if a proof shows that the programs terminate (Plan::without_buffers).
void mark_lendable(const Plan& plan, const BoundSteps::Bytes& bytes,
                   std::vector<BoundStep>& bound_steps) {
  for (BoundStep& bound : bound_steps) {
    const uint64_t length = bound.elements * (bound.widened ? bytes.accumulator : bytes.element);
    bound.lendable = bound.kind == StepKind::send && bound.one_piece && length >= kLeastLent;
  }
  if (plan.without_buffers) return;
  for (const int32_t need : plan.needs) bound_steps[static_cast<size_t>(need)].lendable = false;
}

void mark_results(const Plan& plan, std::vector<BoundStep>& bound_steps) {
  for (BoundStep& bound : bound_steps) {
    bound.is_result = !bound.dst.empty() && bound.dst[0].space == Space::output;
  }
  for (const int32_t need : plan.needs) bound_steps[static_cast<size_t>(need)].is_result = false;
}

}  // namespace

void BoundSteps::make(const Plan& plan, const ChunkMap& chunks, const Bytes& bytes,
                      const std::array<uint64_t, 2>& signature, bool private_blocks) {
  const bool accumulates = bytes.accumulator > 0;
  const std::vector<Step>& steps = plan.program.steps;
  size_t total = 0;
  for (const Step& step : steps) {
    total += chunks_in(step.src) + chunks_in(step.src2) + chunks_in(step.dst);
  }
  pieces_.clear();
  pieces_.reserve(total);  // so that spans into pieces_ stay valid
  const auto pieces_of = [&](const RangeList& ranges, bool scales = false) {
    const size_t first = pieces_.size();
    for (const ChunkRange& range : ranges) {
      for (int32_t chunk = range.first; chunk < range.first + range.count; ++chunk) {
        const Extent& extent = chunks.at(range.space, chunk);
        const bool scratch = range.space == Space::scratch;
        pieces_.push_back({.space = range.space,
                           .widened = accumulates && scratch,
                           .scales = scales && range.space == Space::input,
                           .offset = scratch ? static_cast<uint64_t>(chunk) * bytes.scratch_chunk
                                             : extent.offset * bytes.element,
                           .length = extent.length});
      }
    }
    return std::span<const Piece>(pieces_).subspan(first);
  };
  bound_steps_.clear();
  bound_steps_.reserve(steps.size());
  for (const Step& step : steps) {
    BoundStep bound{.kind = step.kind,
                    .received_on_left = step.received_on_left,
                    .widened = accumulates && step.wire == Wire::accumulator,
                    .computes = step.scales || step.divides,
                    .divides = step.divides,
                    .peer = step.peers.empty() ? -1 : step.peers[0],
                    .peers = step.peers,
                    .signature = signature,
                    .src = pieces_of(step.src, step.scales),
                    .src2 = pieces_of(step.src2, step.scales),
                    .dst = pieces_of(step.dst)};
    const std::span<const Piece> message = step.kind == StepKind::send ? bound.src : bound.dst;
    bound.elements = elements_in(message);
    bound.one_piece = step.kind != StepKind::recv_reduce && !bound.computes &&
                      message.size() == 1 && message[0].widened == bound.widened;
    if (private_blocks) bound.signature = with_count(signature, bound.elements);
    bound_steps_.push_back(bound);
  }
  mark_lendable(plan, bytes, bound_steps_);
  mark_results(plan, bound_steps_);
}

}  // namespace tutti
