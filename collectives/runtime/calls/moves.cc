#include "collectives/runtime/calls/moves.h"

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

// Marks the sends whose payload may be lent. If another step waits for a send, the send must
// complete without the reader's help, unless it was proved that the calls terminate anyway.
void mark_lendable(const Plan& plan, const Moves::Bytes& bytes, std::vector<Move>& moves) {
  for (Move& move : moves) {
    const uint64_t length = move.elements * (move.widened ? bytes.accumulator : bytes.element);
    move.lendable = move.kind == StepKind::send && move.one_piece && length >= kLeastLent;
  }
  if (plan.without_buffers) return;
  for (const int32_t need : plan.needs) moves[static_cast<size_t>(need)].lendable = false;
}

void mark_results(const Plan& plan, std::vector<Move>& moves) {
  for (Move& move : moves) {
    move.is_result = !move.dst.empty() && move.dst[0].space == Space::output;
  }
  for (const int32_t need : plan.needs) moves[static_cast<size_t>(need)].is_result = false;
}

}  // namespace

void Moves::make(const Plan& plan, const ChunkMap& chunks, const Bytes& bytes,
                 const std::array<uint64_t, 2>& signature, bool private_blocks) {
  const bool accumulates = bytes.accumulator > 0;
  const std::vector<Step>& steps = plan.program.steps;
  size_t total = 0;
  for (const Step& step : steps) {
    total += chunks_in(step.src) + chunks_in(step.src2) + chunks_in(step.dst);
  }
  pieces_.clear();
  pieces_.reserve(total);  // spans into it stay valid
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
  moves_.clear();
  moves_.reserve(steps.size());
  for (const Step& step : steps) {
    Move move{.kind = step.kind,
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
    const std::span<const Piece> message = step.kind == StepKind::send ? move.src : move.dst;
    move.elements = elements_in(message);
    move.one_piece = step.kind != StepKind::recv_reduce && !move.computes && message.size() == 1 &&
                     message[0].widened == move.widened;
    if (private_blocks) move.signature = with_count(signature, move.elements);
    moves_.push_back(move);
  }
  mark_lendable(plan, bytes, moves_);
  mark_results(plan, moves_);
}

}  // namespace tutti
