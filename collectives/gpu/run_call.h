// The kernel. Each block runs its slices of a call, step by step, in the order of schedule.h. All
// threads of a block run a step together. Slices are independent of each other, and so are blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/gpu/all_ranks.h"
#include "collectives/gpu/call.h"
#include "collectives/gpu/combine.h"
#include "collectives/gpu/device/annotate.h"
#include "collectives/gpu/mailbox.h"

namespace tutti::gpu {

struct Slice {
  uint32_t number = 0;
  uint64_t first = 0;  // index of its first element in each chunk
};

TUTTI_DEVICE uint64_t elements_of(const Launch& launch, const Slice& slice, uint64_t length) {
  if (slice.first >= length) return 0;
  const uint64_t rest = length - slice.first;
  return rest < launch.slice_elements ? rest : launch.slice_elements;
}

// Returns true if the step's message is not sent because it has no data. Tokens are always sent.
// Messages of slice 0 are also always sent if each rank knows only its own blocks, because their
// signature contains the block's length, which the receiver checks.
TUTTI_DEVICE bool is_silent(const Launch& launch, const DeviceStep& step, const Slice& slice) {
  if (step.parts == 0 || (launch.private_blocks && slice.number == 0)) return false;
  for (uint32_t i = 0; i < step.parts; ++i) {
    if (elements_of(launch, slice, launch.parts[step.first_part + i].length) > 0) return false;
  }
  return true;
}

// Returns the bytes that a part occupies in a slot. Parts begin at whole vectors.
TUTTI_DEVICE uint64_t message_bytes(uint64_t elements, uint64_t width) {
  return (elements * width + sizeof(Vector) - 1) / sizeof(Vector) * sizeof(Vector);
}

template <typename E>
TUTTI_DEVICE uint64_t width(bool widened) {
  return widened ? sizeof(typename E::Value) : sizeof(typename E::Stored);
}

// Returns access to a message's data, which follows its signature.
TUTTI_DEVICE Access message_access(const Launch& launch, std::byte* slot, uint64_t offset,
                                   uint32_t flag, bool widened) {
  if (launch.protocol == Protocol::lines) {
    return {.at = slot + kLineBytes + offset / kLineData * kLineBytes,
            .unit = Unit::lines,
            .widened = widened,
            .flag = flag};
  }
  return {.at = slot + MailboxShape::kSignatureBytes + offset,
          .unit = Unit::vectors,
          .widened = widened};
}

template <typename E, typename B>
TUTTI_DEVICE Access access_of(const B& block, const Operand& operand, const Slice& slice,
                              const Turn& turn, uint64_t received, int32_t lender) {
  const Launch& launch = block.launch;
  std::byte* base = nullptr;
  uint64_t shift = slice.first * sizeof(typename E::Stored);
  switch (operand.where) {
    case Where::nowhere:
      return {};
    case Where::message:
      return message_access(launch, turn.receive_at, received, turn.receive_flag, operand.widened);
    case Where::input:
      base = const_cast<std::byte*>(launch.input);
      break;
    case Where::output:
      base = launch.output;
      break;
    case Where::scratch:
      base = launch.scratch;
      shift = block.thread.block() * launch.scratch_bytes;
      break;
    case Where::lent_input:
      base = launch.lent.input.of(lender);
      break;
    case Where::lent_output:
      base = launch.lent.output.of(lender);
      break;
    case Where::all_inputs:
    case Where::all_outputs:
      return {};  // add_all() accesses these buffers
  }
  base += operand.offset + shift;
  return {.at = base, .unit = unit_of(base), .widened = operand.widened, .scales = operand.scales};
}

// Processes all data of a step. Returns the number of data bytes in the message that it sends.
template <typename E, typename B>
TUTTI_DEVICE uint64_t do_parts(B& block, const DeviceStep& step, const Slice& slice,
                               const Turn& turn) {
  const Launch& launch = block.launch;
  const int32_t lender = step.receives >= 0 ? block.ports[step.receives].peer : -1;
  uint64_t received = 0;
  uint64_t sent = 0;
  for (uint32_t i = 0; i < step.parts; ++i) {
    const Part& part = launch.parts[step.first_part + i];
    Run run{.a = access_of<E>(block, part.a, slice, turn, received, lender),
            .b = access_of<E>(block, part.b, slice, turn, received, lender),
            .dst = access_of<E>(block, part.dst, slice, turn, received, lender),
            .count = elements_of(launch, slice, part.length),
            .divides = step.divides};
    if (run.count == 0) continue;
    if (step.receives_from_all) {
      const uint64_t shift = slice.first * sizeof(typename E::Stored);
      add_all<E>(block, step,
                 {.from = part.a.offset + shift,
                  .to = part.dst.offset + shift,
                  .dst = run.dst.at,
                  .count = run.count,
                  .divides = step.divides});
      continue;
    }
    if (step.sends >= 0 && step.lend < 0) {
      run.message = message_access(launch, turn.send_at, sent, turn.send_flag, step.sends_widened);
    }
    do_run<E>(block, run);
    const bool widened = part.a.where == Where::message ? part.a.widened : part.b.widened;
    received += message_bytes(run.count, width<E>(widened));
    sent += message_bytes(run.count, width<E>(step.sends_widened));
  }
  return sent;
}

// Runs one step. Returns false if the kernel is to stop; the result is equal for all threads.
template <typename E, typename B>
TUTTI_DEVICE bool do_step(B& block, const DeviceStep& step, const Slice& slice) {
  using R = typename B::TheRules;
  if (is_silent(block.launch, step, slice)) return true;
  if (block.is_first()) {
    begin_messages(block, step, block.shared.turn);
    block.shared.turn.stops = block.stopping();
  }
  block.thread.barrier();
  const Turn turn = block.shared.turn;
  if (turn.stops) return false;
  const uint64_t sent = do_parts<E>(block, step, slice, turn);
  if (block.launch.protocol == Protocol::lines) {
    exchange_signatures(block, step, turn);
    if (step.sends >= 0 && turn.cleans) clean_rest(block, turn, sent);
  }
  if (R::kWaitsForThreads) block.thread.barrier();
  if (block.is_first() && !block.stopping()) end_messages(block, step);
  return true;
}

template <typename E, typename B>
TUTTI_DEVICE void do_slices(B& block) {
  const Launch& launch = block.launch;
  for (uint32_t s = block.thread.block(); s < launch.slices; s += block.thread.blocks()) {
    const Slice slice{.number = s, .first = s * launch.slice_elements};
    for (uint32_t i = 0; i < launch.step_count; ++i) {
      if (!do_step<E>(block, launch.steps[i], slice)) return;
    }
  }
}

template <typename E, typename RulesOfTest = Rules, typename Thread>
TUTTI_DEVICE void run_call(Thread& thread, const Launch& launch) {
  auto* const shared = reinterpret_cast<Shared*>(thread.shared());
  auto* const ports = reinterpret_cast<Port*>(shared + 1);
  auto* const lent = reinterpret_cast<uint64_t*>(ports + launch.port_count);
  Block<Thread, RulesOfTest> block{thread, launch, *shared, ports, lent};
  if (block.is_first()) thread.store_shared(&shared->stopping, 0);
  open_ports(block);
  for (uint32_t i = thread.index(); i < launch.lend_count; i += thread.threads()) lent[i] = 0;
  thread.barrier();
  do_slices<E>(block);
  thread.barrier();
  close_ports(block);
}

}  // namespace tutti::gpu
