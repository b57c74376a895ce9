// The protocol between a block of a kernel and the blocks with the same index on its peers. It
// defines when a message may be sent, when it has arrived, and when it has been read. The first
// thread of a block waits on behalf of all its threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/gpu/access.h"
#include "collectives/gpu/call.h"
#include "collectives/gpu/device/annotate.h"

namespace tutti::gpu {

// Rules that make the protocol safe. Tests break them one by one to check that violations are
// noticed.
struct Rules {
  // Returns the flag of the lines in message `sequence`. It differs from every flag that a line of
  // the slot still holds, including the zero of lines that no message has written
  // (kTurnsBetweenCleanings).
  static constexpr uint32_t flag(uint64_t sequence) { return static_cast<uint32_t>(sequence + 1); }
  // Returns how many messages may be in flight, that is, sent but not read.
  static constexpr uint64_t room(uint64_t slots) { return slots; }
  static constexpr bool kPublishesBeforeData = false;
  static constexpr bool kWaitsForThreads = true;  // waits for all threads before a slot is released
  static constexpr bool kWaitsForReaders =
      true;  // waits for readers of loans before their memory is overwritten
};

// Flags repeat after 2^32 messages. By then, no slot may still contain a line that an earlier
// message wrote with the same flag. So every kTurnsBetweenCleanings-th message in a slot writes all
// lines of the slot.
inline constexpr uint64_t kTurnsBetweenCleanings = 1 << 20;

// The connection of a block to one peer of the call.
struct Port {
  std::byte* here;   // the mailbox in this rank's memory
  std::byte* there;  // the mailbox in the peer's memory
  int32_t peer;
  uint64_t sent;
  uint64_t received;
  uint64_t consumed;  // number of sent messages known to be consumed
};

// State of a step that the first thread passes to the threads of its block.
struct Turn {
  const Port* from;       // port of a message received as lines; null: none
  uint64_t signature;     // expected signature of that message
  std::byte* receive_at;  // slot of the received message; the signature comes first
  std::byte* send_at;
  uint32_t receive_flag;
  uint32_t send_flag;
  bool cleans;  // true: all lines of the sent slot must be written
  bool stops;   // true: the kernel terminates here
};

// State shared by the threads of a block. The first thread writes `turn` between two steps; any
// thread that gives up waiting sets `stopping`, at any time. All threads base their decisions on
// `turn`, so they agree.
struct Shared {
  Turn turn;
  uint32_t stopping;
};

// Returns the size of Shared and the arrays behind it: the ports, and for each loan the number of
// messages on its port up to and including the loan's message.
constexpr uint64_t shared_bytes(uint64_t ports, uint64_t lends) {
  return sizeof(Shared) + ports * sizeof(Port) + lends * sizeof(uint64_t);
}

// Values that each thread of a block needs during the call.
template <typename Thread, typename RulesOfTest = Rules>
struct Block {
  using TheRules = RulesOfTest;
  using TheThread = Thread;

  Thread& thread;
  const Launch& launch;
  Shared& shared;
  Port* ports;
  uint64_t* lent;
  uint32_t spins = 0;

  TUTTI_DEVICE bool is_first() const { return thread.index() == 0; }
  TUTTI_DEVICE bool stopping() const { return thread.load_shared(&shared.stopping) != 0; }
  TUTTI_DEVICE void stop() { thread.store_shared(&shared.stopping, 1); }
  // Returns true if the kernel must stop; called in each iteration of a wait. `finds_mismatch()`
  // returns true if the awaited peer is in another call. finds_mismatch() and the host's stop word
  // are evaluated only rarely, because both are expensive.
  template <typename FindsMisfit>
  TUTTI_DEVICE bool must_stop(const FindsMisfit& finds_mismatch) {
    thread.pause();
    if (stopping()) return true;
    if (++spins % Thread::kSpinsPerLook != 0) return false;
    if (thread.load_relaxed(launch.stop) == 0 && !finds_mismatch()) return false;
    stop();
    return true;
  }
  // Returns true if the kernel must stop; called in each iteration of a wait for the line
  // `awaited`.
  TUTTI_DEVICE bool must_stop(const Line* awaited, uint32_t flag);
};

TUTTI_DEVICE Mailbox* words_of(std::byte* mailbox) { return reinterpret_cast<Mailbox*>(mailbox); }

template <typename B>
TUTTI_DEVICE void open_ports(B& block) {
  const Launch& launch = block.launch;
  const auto protocol = static_cast<size_t>(launch.protocol);
  for (uint32_t i = block.thread.index(); i < launch.port_count; i += block.thread.threads()) {
    const int32_t peer = launch.ports[i];
    const uint64_t shift = block.thread.block() * launch.shape.mailbox_bytes();
    const Progress& progress =
        launch.progress[static_cast<uint64_t>(peer) * launch.shape.blocks + block.thread.block()];
    const PeerMemory& memory = launch.peers[peer];
    block.ports[i] = {.here = memory.here + shift,
                      .there = memory.there + shift,
                      .peer = peer,
                      .sent = progress.sent[protocol],
                      .received = progress.received[protocol],
                      .consumed = 0};
  }
}

// Terminates this rank's kernels, because the peer's message belongs to another call, and reports
// the peer to the host.
template <typename B>
TUTTI_DEVICE void report_mismatch(B& block, const Port& port) {
  block.thread.store_release(block.launch.mismatch, static_cast<uint64_t>(port.peer) + 1);
  block.thread.store_release(block.launch.stop, 1);
  block.stop();
}

// Returns true if the awaited peer is in a call that does not match this one, and reports the peer.
// The sign of another call is a message in the other protocol. Since a peer's calls are ordered,
// the peer has then either completed this call or never joined it. If it has completed this call,
// the awaited message has arrived too, so `has_arrived()` returns true.
template <typename B, typename HasArrived>
TUTTI_DEVICE bool is_in_another_call(B& block, const Port& port, const HasArrived& has_arrived) {
  const Launch& launch = block.launch;
  const Progress& before =
      launch
          .progress[static_cast<uint64_t>(port.peer) * launch.shape.blocks + block.thread.block()];
  bool is_other = false;
  if (launch.protocol == Protocol::lines) {
    const uint64_t published = block.thread.load_acquire(&words_of(port.here)->published);
    is_other = published > before.received[static_cast<size_t>(Protocol::simple)];
  } else {
    const uint64_t next = before.received[static_cast<size_t>(Protocol::lines)];
    const uint64_t slot = next & (launch.shape.slots - 1);
    const auto* const first =
        reinterpret_cast<const Line*>(port.here + launch.shape.lines_at(slot));
    const uint32_t flag = B::TheRules::flag(next);
    is_other = flag != 0 && block.thread.load_line(first).flag0 == flag;
  }
  if (!is_other) return false;
  block.thread.fence();  // messages sent before the other message are visible from here on
  if (has_arrived()) return false;
  report_mismatch(block, port);
  return true;
}

// Waits until the peer has read the first `end` messages, or until the kernel is to stop.
template <typename B>
TUTTI_DEVICE void await_readers(B& block, Port& port, uint64_t end) {
  const auto protocol = static_cast<size_t>(block.launch.protocol);
  const auto were_read = [&] {
    port.consumed = block.thread.load_acquire(&words_of(port.here)->consumed[protocol]);
    return port.consumed >= end;
  };
  while (port.consumed < end && !were_read()) {
    if (block.must_stop([&] { return is_in_another_call(block, port, were_read); })) return;
  }
}

template <typename B>
TUTTI_DEVICE void close_ports(B& block) {
  const Launch& launch = block.launch;
  const auto protocol = static_cast<size_t>(launch.protocol);
  for (uint32_t i = block.thread.index(); i < launch.port_count; i += block.thread.threads()) {
    Port& port = block.ports[i];
    if (launch.lend_count > 0 && B::TheRules::kWaitsForReaders) {
      await_readers(block, port, port.sent);
    }
    Progress& progress = launch.progress[static_cast<uint64_t>(port.peer) * launch.shape.blocks +
                                         block.thread.block()];
    progress.sent[protocol] = port.sent;
    progress.received[protocol] = port.received;
  }
}

// --- run by the first thread of the block ---

TUTTI_DEVICE uint64_t signature_of(const Launch& launch, const DeviceStep& step) {
  return step.signature ^ launch.lent.salt;
}

// Checks that the received message belongs to this rank's step; otherwise terminates this rank's
// kernels.
template <typename B>
TUTTI_DEVICE void check_signature(B& block, const Port& port, uint64_t found, uint64_t expected) {
  if (found != expected) report_mismatch(block, port);
}

template <typename B>
TUTTI_DEVICE void begin_receive(B& block, const DeviceStep& step, const Port& port, Turn& turn) {
  const Launch& launch = block.launch;
  const uint64_t slot = port.received & (launch.shape.slots - 1);
  if (launch.protocol == Protocol::lines) {
    turn.receive_at = port.here + launch.shape.lines_at(slot);
    turn.receive_flag = B::TheRules::flag(port.received);
    turn.from = &port;
    turn.signature = step.signature;
    return;
  }
  turn.receive_at = port.here + launch.shape.simple_at(slot);
  const auto has_arrived = [&] {
    return block.thread.load_acquire(&words_of(port.here)->published) > port.received;
  };
  while (!has_arrived()) {
    if (block.must_stop([&] { return is_in_another_call(block, port, has_arrived); })) return;
  }
  check_signature(block, port, *reinterpret_cast<const uint64_t*>(turn.receive_at),
                  signature_of(launch, step));
}

template <typename B>
TUTTI_DEVICE void begin_send(B& block, const DeviceStep& step, Port& port, Turn& turn) {
  const Launch& launch = block.launch;
  const uint64_t room = B::TheRules::room(launch.shape.slots);
  if (port.sent >= room) await_readers(block, port, port.sent - room + 1);
  if (block.stopping()) return;
  const uint64_t slot = port.sent & (launch.shape.slots - 1);
  if (launch.protocol == Protocol::lines) {
    turn.send_at = port.there + launch.shape.lines_at(slot);
    turn.send_flag = B::TheRules::flag(port.sent);
    turn.cleans =
        port.sent / launch.shape.slots % kTurnsBetweenCleanings == kTurnsBetweenCleanings - 1;
    return;
  }
  turn.send_at = port.there + launch.shape.simple_at(slot);
  *reinterpret_cast<uint64_t*>(turn.send_at) = signature_of(launch, step);
}

// Waits until all loans of memory that the step overwrites have been read.
template <typename B>
TUTTI_DEVICE void await_awaited(B& block, const DeviceStep& step) {
  for (uint32_t i = 0; i < step.awaited; ++i) {
    const Awaited& awaited = block.launch.awaited[step.first_awaited + i];
    await_readers(block, block.ports[awaited.port], block.lent[awaited.lend]);
  }
}

template <typename B>
TUTTI_DEVICE void publish(B& block, const Port& port) {
  block.thread.store_after_fence(&words_of(port.there)->published, port.sent + 1);
}

template <typename B>
TUTTI_DEVICE void end_receive(B& block, Port& port) {
  const auto protocol = static_cast<size_t>(block.launch.protocol);
  ++port.received;
  block.thread.store_after_fence(&words_of(port.there)->consumed[protocol], port.received);
}

template <typename B>
TUTTI_DEVICE void end_send(B& block, Port& port) {
  const bool simple = block.launch.protocol == Protocol::simple;
  if (simple && !B::TheRules::kPublishesBeforeData) publish(block, port);
  ++port.sent;
}

// Ports on which a step receives or sends: none, one or all.
struct Ports {
  uint32_t begin = 0;
  uint32_t end = 0;
};

TUTTI_DEVICE Ports ports_of(const Launch& launch, int32_t one, bool all) {
  if (all) return {0, launch.port_count};
  if (one < 0) return {};
  return {static_cast<uint32_t>(one), static_cast<uint32_t>(one) + 1};
}

template <typename B>
TUTTI_DEVICE void begin_messages(B& block, const DeviceStep& step, Turn& turn) {
  if (B::TheRules::kWaitsForReaders) await_awaited(block, step);
  turn.from = nullptr;
  const Ports from = ports_of(block.launch, step.receives, step.receives_from_all);
  for (uint32_t i = from.begin; i < from.end; ++i) begin_receive(block, step, block.ports[i], turn);
  const Ports to = ports_of(block.launch, step.sends, step.sends_to_all);
  for (uint32_t i = to.begin; i < to.end; ++i) {
    begin_send(block, step, block.ports[i], turn);
    if (B::TheRules::kPublishesBeforeData) publish(block, block.ports[i]);
  }
}

// Releases the slots of received messages and publishes the sent ones. It is called when all
// threads have finished with the slots; one fence covers all words.
template <typename B>
TUTTI_DEVICE void end_messages(B& block, const DeviceStep& step) {
  const Ports from = ports_of(block.launch, step.receives, step.receives_from_all);
  const Ports to = ports_of(block.launch, step.sends, step.sends_to_all);
  if (from.begin == from.end && to.begin == to.end) return;
  block.thread.fence();
  for (uint32_t i = from.begin; i < from.end; ++i) end_receive(block, block.ports[i]);
  for (uint32_t i = to.begin; i < to.end; ++i) end_send(block, block.ports[i]);
  if (step.lend >= 0) block.lent[step.lend] = block.ports[step.sends].sent;
}

// --- the signature's line and unused lines ---

TUTTI_DEVICE uint64_t signature_in(const Line& line) {
  return line.data0 | uint64_t{line.data1} << 32;
}

// Returns true if the kernel must stop. A message of another call may be shorter than the expected
// one, so that the awaited line never arrives. The signature in line 0 then differs.
template <typename Thread, typename RulesOfTest>
TUTTI_DEVICE bool Block<Thread, RulesOfTest>::must_stop(const Line* awaited, uint32_t flag) {
  return must_stop([&] {
    const Turn& turn = shared.turn;
    if (!is_first() || turn.from == nullptr) return false;
    const auto has_arrived = [&] {
      const Line line = thread.load_line(awaited);
      return line.flag0 == flag && line.flag1 == flag;
    };
    if (is_in_another_call(*this, *turn.from, has_arrived)) return true;
    const Line line = thread.load_line(reinterpret_cast<const Line*>(turn.receive_at));
    const bool has_begun = line.flag0 == turn.receive_flag && line.flag1 == turn.receive_flag;
    if (!has_begun || signature_in(line) == turn.signature) return false;
    report_mismatch(*this, *turn.from);
    return true;
  });
}

// Sends and checks signatures in line 0.
template <typename B>
TUTTI_DEVICE void exchange_signatures(B& block, const DeviceStep& step, const Turn& turn) {
  if (!block.is_first()) return;
  if (step.sends >= 0) {
    block.thread.store_line(reinterpret_cast<Line*>(turn.send_at),
                            {static_cast<uint32_t>(step.signature), turn.send_flag,
                             static_cast<uint32_t>(step.signature >> 32), turn.send_flag});
  }
  if (step.receives >= 0) {
    const Line line =
        await_line(block, reinterpret_cast<const Line*>(turn.receive_at), turn.receive_flag);
    if (block.stopping()) return;
    check_signature(block, block.ports[step.receives], signature_in(line), step.signature);
  }
}

// Writes zeros with the message's flag into all lines behind the first `bytes` bytes of data.
template <typename B>
TUTTI_DEVICE void clean_rest(B& block, const Turn& turn, uint64_t bytes) {
  auto* const lines = reinterpret_cast<Line*>(turn.send_at + kLineBytes);
  const uint64_t used = (bytes + kLineData - 1) / kLineData;
  const uint64_t all = block.launch.shape.lines_data / kLineData;
  for (uint64_t i = used + block.thread.index(); i < all; i += block.thread.threads()) {
    block.thread.store_line(lines + i, {0, turn.send_flag, 0, turn.send_flag});
  }
}

}  // namespace tutti::gpu
