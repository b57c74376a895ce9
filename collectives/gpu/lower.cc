#include "collectives/gpu/lower.h"

#include <algorithm>

#include "base/error.h"
#include "base/mix_bits.h"

namespace tutti::gpu {

namespace {

Where where_of(Space space) {
  switch (space) {
    case Space::input:
      return Where::input;
    case Space::output:
      return Where::output;
    case Space::scratch:
      return Where::scratch;
  }
  return Where::nowhere;
}

Operand operand_of(const Piece& piece) {
  return {.offset = piece.offset,
          .where = where_of(piece.space),
          .widened = piece.widened,
          .scales = piece.scales};
}

class Lowering {
 public:
  explicit Lowering(const CompiledCall& compiled) : compiled_(compiled) {}

  void add(const Action& action) {
    const Move& move = compiled_.moves[static_cast<size_t>(action.step)];
    DeviceStep step{.signature = signature_of(move),
                    .first_part = static_cast<uint32_t>(lowered_.parts.size()),
                    .divides = move.divides};
    switch (move.kind) {
      case StepKind::send:
        step.sends = port(action.sends_to);
        step.sends_widened = move.widened;
        for (const Piece& piece : move.src) add_part(operand_of(piece), {}, {}, piece.length);
        break;
      case StepKind::recv:
      case StepKind::recv_reduce:
        step.receives = port(move.peer);
        add_received(move);
        break;
      case StepKind::reduce:
        for (size_t i = 0; i < move.dst.size(); ++i) {
          add_part(operand_of(move.src[i]), operand_of(move.src2[i]), operand_of(move.dst[i]),
                   move.dst[i].length);
        }
        break;
      case StepKind::copy:
        for (size_t i = 0; i < move.dst.size(); ++i) {
          add_part(operand_of(move.src[i]), {}, operand_of(move.dst[i]), move.dst[i].length);
        }
        break;
    }
    if (action.forwards >= 0) {
      const Move& send = compiled_.moves[static_cast<size_t>(action.forwards)];
      step.sends = port(action.forwards_to);
      step.sends_widened = send.widened;
    }
    step.parts = static_cast<uint32_t>(lowered_.parts.size()) - step.first_part;
    lowered_.steps.push_back(step);
  }

  LoweredCall take() { return std::move(lowered_); }

 private:
  // What both ends of a message must agree on.
  static uint64_t signature_of(const Move& move) {
    return mix_bits(mix_bits(move.signature[0] + kGolden) ^ move.signature[1]);
  }
  int32_t port(int32_t peer) {
    const auto place = std::ranges::find(lowered_.ports, peer);
    if (place == lowered_.ports.end()) {
      lowered_.ports.push_back(peer);
      return static_cast<int32_t>(lowered_.ports.size()) - 1;
    }
    return static_cast<int32_t>(place - lowered_.ports.begin());
  }
  void add_part(const Operand& a, const Operand& b, const Operand& dst, uint64_t length) {
    lowered_.parts.push_back({.a = a, .b = b, .dst = dst, .length = length});
  }
  void add_received(const Move& move) {
    const Operand message{.where = Where::message, .widened = move.widened};
    for (size_t i = 0; i < move.dst.size(); ++i) {
      const Operand dst = operand_of(move.dst[i]);
      const uint64_t length = move.dst[i].length;
      if (move.kind == StepKind::recv) {
        add_part(message, {}, dst, length);
      } else if (move.received_on_left) {
        add_part(message, operand_of(move.src[i]), dst, length);
      } else {
        add_part(operand_of(move.src[i]), message, dst, length);
      }
    }
  }

  const CompiledCall& compiled_;
  LoweredCall lowered_;
};

}  // namespace

Limits limits_of(const MailboxShape& shape, Protocol protocol, uint32_t blocks) {
  const uint64_t bytes = protocol == Protocol::lines ? shape.lines_data : shape.simple_bytes;
  // Every lane has a block and every connection its own slots: neither is shared.
  return {.lanes = static_cast<int>(blocks),
          .slots = 1 << 30,
          .message_bytes = bytes,
          .p2p_message_bytes = bytes,
          .least_bytes = kLeastMessageBytes};
}

LoweredCall lower(const CompiledCall& compiled, std::span<const Action> actions,
                  const MailboxShape& shape, Protocol protocol) {
  if (compiled.reduction.op == ReduceOp::user) {
    throw Error(ErrorCode::unsupported, "an operator of the caller's cannot run on a GPU",
                {.cause = "it is a function of the host's",
                 .remedy = "use a built-in operator, or buffers in the host's memory"});
  }
  Lowering lowering(compiled);
  for (const Action& action : actions) lowering.add(action);
  LoweredCall lowered = lowering.take();
  lowered.blocks = static_cast<uint32_t>(compiled.slicing.lanes);
  lowered.launch = {.step_count = static_cast<uint32_t>(lowered.steps.size()),
                    .port_count = static_cast<uint32_t>(lowered.ports.size()),
                    .shape = shape,
                    .scratch_bytes = (compiled.scratch_bytes + 127) / 128 * 128,
                    .slice_elements = compiled.slicing.elements,
                    .slices = compiled.slicing.slices,
                    .protocol = protocol,
                    .factor = compiled.reduction.factor,
                    .combined = compiled.combined,
                    .op = static_cast<uint8_t>(compiled.reduction.op),
                    .private_blocks = compiled.private_blocks};
  return lowered;
}

}  // namespace tutti::gpu
