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

Operand lent(const Piece& piece) {
  return {.offset = piece.offset,
          .where = piece.space == Space::input ? Where::lent_input : Where::lent_output};
}

Operand operand_of(const Piece& piece) {
  return {.offset = piece.offset,
          .where = where_of(piece.space),
          .widened = piece.widened,
          .scales = piece.scales};
}

class Lowering {
 public:
  Lowering(std::span<const CompiledCall> compiled, int rank)
      : compiled_(compiled), own_(compiled[static_cast<size_t>(rank)]) {}

  void add(const Action& action) {
    const BoundStep& bound = own_.bound_steps[static_cast<size_t>(action.step)];
    DeviceStep step{.signature = signature_of(bound),
                    .first_part = static_cast<uint32_t>(lowered_.parts.size()),
                    .divides = bound.divides,
                    .first_awaited = static_cast<uint32_t>(lowered_.awaited.size()),
                    .awaited = static_cast<uint32_t>(action.awaited.size())};
    for (const int32_t lend : action.awaited) {
      lowered_.awaited.push_back({lent_by_[static_cast<size_t>(lend)], lend});
    }
    if (action.from_all) {
      add_all(bound, action, step);
    } else {
      add_move(bound, action, step);
    }
    if (action.forwards >= 0) {
      const BoundStep& send = own_.bound_steps[static_cast<size_t>(action.forwards)];
      step.sends = port(action.forwards_to);
      step.sends_widened = send.widened;
    }
    if (action.lend >= 0) {
      step.lend = action.lend;
      lent_by_.resize(static_cast<size_t>(action.lend) + 1);
      lent_by_.back() = step.sends;
    }
    step.parts = static_cast<uint32_t>(lowered_.parts.size()) - step.first_part;
    lowered_.steps.push_back(step);
  }

  LoweredCall take() {
    lowered_.launch.lend_count = static_cast<uint32_t>(lent_by_.size());
    return std::move(lowered_);
  }

 private:
  void add_move(const BoundStep& bound, const Action& action, DeviceStep& step) {
    switch (bound.kind) {
      case StepKind::send:
        step.sends = port(action.sends_to);
        step.sends_widened = bound.widened;
        for (const Piece& piece : bound.src) add_part(operand_of(piece), {}, {}, piece.length);
        break;
      case StepKind::recv:
      case StepKind::recv_reduce:
        step.receives = port(bound.peer);
        add_received(bound, action);
        break;
      case StepKind::reduce:
        for (size_t i = 0; i < bound.dst.size(); ++i) {
          add_part(operand_of(bound.src[i]), operand_of(bound.src2[i]), operand_of(bound.dst[i]),
                   bound.dst[i].length);
        }
        break;
      case StepKind::copy:
        for (size_t i = 0; i < bound.dst.size(); ++i) {
          add_part(operand_of(bound.src[i]), {}, operand_of(bound.dst[i]), bound.dst[i].length);
        }
        break;
    }
  }

  // Returns a hash of the values that both ends of a message must agree on.
  static uint64_t signature_of(const BoundStep& bound) {
    return mix_bits(mix_bits(bound.signature[0] + kGolden) ^ bound.signature[1]);
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
  // Returns the data piece with index `piece` in the lender's memory.
  const Piece& lent_piece(const Action& action, size_t piece) const {
    const CompiledCall& lender = compiled_[static_cast<size_t>(action.lender)];
    return lender.bound_steps[static_cast<size_t>(action.lender_step)].src[piece];
  }
  void add_received(const BoundStep& bound, const Action& action) {
    for (size_t i = 0; i < bound.dst.size(); ++i) {
      if (action.given) {
        add_part({}, {}, {}, bound.dst[i].length);
        continue;
      }
      const Operand message = action.lender_step >= 0
                                  ? lent(lent_piece(action, i))
                                  : Operand{.where = Where::message, .widened = bound.widened};
      const Operand dst = operand_of(bound.dst[i]);
      const uint64_t length = bound.dst[i].length;
      if (bound.kind == StepKind::recv) {
        add_part(message, {}, dst, length);
      } else if (bound.received_on_left) {
        add_part(message, operand_of(bound.src[i]), dst, length);
      } else {
        add_part(operand_of(bound.src[i]), message, dst, length);
      }
    }
  }

  // Adds a part whose operands are in all ranks' memory. The chunk is at the same location in all
  // ranks' inputs and outputs.
  void add_all(const BoundStep& bound, const Action& action, DeviceStep& step) {
    for (size_t rank = 0; rank < compiled_.size(); ++rank) {
      if (&compiled_[rank] != &own_) port(static_cast<int32_t>(rank));
    }
    step.receives_from_all = true;
    step.sends_to_all = action.to_all;
    step.by_switch = action.by_switch;
    Operand dst = operand_of(bound.dst[0]);
    if (action.to_all) dst.where = Where::all_outputs;
    add_part({.offset = lent_piece(action, 0).offset, .where = Where::all_inputs}, {}, dst,
             bound.dst[0].length);
  }

  std::span<const CompiledCall> compiled_;
  const CompiledCall& own_;
  LoweredCall lowered_;
  std::vector<int32_t> lent_by_;  // by index of the loan: port on which it is sent
};

}  // namespace

Limits limits_of(const MailboxShape& shape, Protocol protocol, uint32_t blocks) {
  const uint64_t bytes = protocol == Protocol::lines ? shape.lines_data : shape.simple_bytes;
  // Every lane has a block, and every connection has its own slots, so the limits do not depend on
  // other connections.
  Limits limits = Limits::of_one_path(static_cast<int>(blocks), 1 << 30, {bytes, bytes});
  limits.least_bytes = kLeastMessageBytes;
  return limits;
}

LoweredCall lower(std::span<const CompiledCall> of_ranks, int rank, std::span<const Action> actions,
                  const MailboxShape& shape, Protocol protocol) {
  const CompiledCall& compiled = of_ranks[static_cast<size_t>(rank)];
  if (compiled.reduction.op == ReduceOp::user) {
    throw Error(ErrorCode::unsupported, "a user-defined operator cannot run on a GPU",
                {.cause = "the operator is a host function",
                 .remedy = "use a built-in operator, or buffers in host memory"});
  }
  Lowering lowering(of_ranks, rank);
  for (const Action& action : actions) lowering.add(action);
  LoweredCall lowered = lowering.take();
  lowered.blocks = static_cast<uint32_t>(compiled.slicing.lanes);
  lowered.launch = {.step_count = static_cast<uint32_t>(lowered.steps.size()),
                    .port_count = static_cast<uint32_t>(lowered.ports.size()),
                    .lend_count = lowered.launch.lend_count,
                    .shape = shape,
                    .scratch_bytes = (compiled.scratch_bytes + 127) / 128 * 128,
                    .slice_elements = compiled.slicing.elements,
                    .slices = compiled.slicing.slices,
                    .protocol = protocol,
                    .factor = compiled.reduction.factor,
                    .combined = compiled.combined,
                    .op = static_cast<uint8_t>(compiled.reduction.op),
                    .private_blocks = compiled.private_blocks,
                    .ranks = static_cast<int32_t>(of_ranks.size())};
  return lowered;
}

}  // namespace tutti::gpu
