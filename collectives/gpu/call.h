// What a kernel is told of a call, and the memory by which the ranks' kernels talk: plain values,
// the same on the host and on the device.
//
// Rank b has, for each other rank a and each block, a *mailbox* in its own memory, to which a
// writes. Messages from a to b travel through the slots of it, in order:
//
//      a's kernel, block k                            b's kernel, block k
//                          b's mailbox of a
//      writes slot  ──→  [slot][slot][slot][slot]  ──→ reads slot
//      published    ──→  published                     waits for it
//      waits for it                                    consumed  ──→  in a's mailbox of b
//
//   simple   a message is written into a slot, then `published` is raised by a release; full
//            bandwidth
//   lines    a message is stored as lines of 8 bytes, each with its flag (device/words.h): nobody
//            waits for `published`, at half the bandwidth (NCCL calls it LL)
//
// A message by the simple protocol may be *lent*: it stays where it lies in the sender's input or
// output, where the receiver reads it, and the slot carries its signature only. The sender waits
// for its readers before it writes there again, and at the end.
//
// Messages of a protocol are numbered from 0 on as long as the communicator lives, and a line's
// flag is made of the number: nobody resets anything between calls, so a kernel can be launched
// again and again from a graph.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::gpu {

enum class Protocol : uint32_t { simple = 0, lines = 1 };
inline constexpr int kProtocols = 2;

// Of a block. Kernels are compiled to have registers for so many.
inline constexpr unsigned kMostThreads = 512;

inline constexpr uint64_t kLineBytes = 16;  // of which carry data:
inline constexpr uint64_t kLineData = 8;

// The words of a mailbox, in front of its slots. Those that different kernels write are apart.
struct Mailbox {
  alignas(128) uint64_t published;  // messages by the simple protocol; the sender writes it
  // Messages that went the other way and were read; written by who read them.
  alignas(128) uint64_t consumed[kProtocols];
};

// Sizes that all ranks of a communicator have in common.
struct MailboxShape {
  uint32_t slots = 4;         // of each protocol; a power of two
  uint32_t blocks = 1;        // the most that a kernel may have
  uint64_t simple_bytes = 0;  // of a slot; a multiple of 16
  uint64_t lines_data = 0;    // bytes of data in a slot of lines; a multiple of 16

  // In front of the data of a slot: who sent it thinks it is a message of what call.
  static constexpr uint64_t kSignatureBytes = 16;

  constexpr uint64_t simple_slot() const { return kSignatureBytes + simple_bytes; }
  constexpr uint64_t lines_slot() const { return kLineBytes + lines_data / kLineData * kLineBytes; }
  constexpr uint64_t simple_at(uint64_t slot) const {
    return sizeof(Mailbox) + slot * simple_slot();
  }
  constexpr uint64_t lines_at(uint64_t slot) const {
    return simple_at(slots) + slot * lines_slot();
  }
  constexpr uint64_t mailbox_bytes() const {
    return (lines_at(slots) + alignof(Mailbox) - 1) / alignof(Mailbox) * alignof(Mailbox);
  }
  // Of one rank: mailbox (peer, block) is at (peer * blocks + block) * mailbox_bytes().
  constexpr uint64_t total(int ranks) const {
    return static_cast<uint64_t>(ranks) * blocks * mailbox_bytes();
  }
};

// Of every communicator.
inline constexpr MailboxShape kMailboxShape{
    .slots = 4, .blocks = 32, .simple_bytes = 64 << 10, .lines_data = 8 << 10};
// Of a message of which another block could send a part: 16 warps move as much at a time.
inline constexpr uint64_t kLeastMessageBytes = 2 << 10;

// How far a rank's block is with a peer; kept in its own device memory from call to call.
struct Progress {
  uint64_t sent[kProtocols];
  uint64_t received[kProtocols];
};

// The mailboxes of this rank and one of its peers, of block 0.
struct PeerMemory {
  std::byte* here = nullptr;   // the peer writes to it
  std::byte* there = nullptr;  // this rank writes to it
};

enum class Where : uint8_t {
  nowhere,
  input,
  output,
  scratch,
  message,
  lent_input,   // of the rank that the step receives from
  lent_output,  // likewise
  all_inputs,   // of all ranks, this one's too: combined as they are read
  all_outputs,  // of all ranks: written to each
};

struct Operand {
  uint64_t offset = 0;  // bytes; of a message: it follows from the parts before
  Where where = Where::nowhere;
  bool widened = false;  // accumulators, not elements
  bool scales = false;   // to be multiplied by this rank's factor, and rounded to an element
};

// dst = a, or a op b, for `length` elements (over all slices).
struct Part {
  Operand a;
  Operand b;
  Operand dst;
  uint64_t length = 0;
};

// What the threads of a block do together, in order. A step may receive one message and send one:
// its result then goes to `dst` and into the message.
struct DeviceStep {
  uint64_t signature = 0;  // of its messages
  int32_t receives = -1;   // the port that a message comes by; -1: none
  int32_t sends = -1;      // the port that a message goes to; -1: none
  uint32_t first_part = 0;
  uint32_t parts = 0;
  bool divides = false;  // results are divided by Launch::combined, and rounded to elements
  bool sends_widened = false;
  int32_t lend = -1;  // the number of what it sends, where that is lent; -1: it is not
  uint32_t first_awaited = 0;
  uint32_t awaited = 0;            // lent messages that lie where the step writes
  bool receives_from_all = false;  // a message by each port
  bool sends_to_all = false;       // a message to each port
  bool by_switch = false;          // may leave the sum to the switch
};

// Of lent messages: a step may go on when it was read.
struct Awaited {
  int32_t port = 0;
  int32_t lend = 0;
};

// A buffer of a call as this rank reaches those of all ranks.
struct LentBuffer {
  std::byte* const* windows = nullptr;  // by rank
  uint64_t offset = 0;                  // of the buffer in each rank's window,
  uint64_t stride = 0;                  // and, where it is the rank's block of the other buffer

  constexpr std::byte* of(int32_t rank) const {
    return windows[rank] + offset + static_cast<uint64_t>(rank) * stride;
  }
};

struct LentBuffers {
  LentBuffer input;
  LentBuffer output;
  // Addresses that stand for those of all ranks, for multimem instructions; null: there are none.
  std::byte* multicast_input = nullptr;
  std::byte* multicast_output = nullptr;
  // Of the windows and places: ranks that do not lend alike find messages that do not fit.
  uint64_t salt = 0;
};

// The one parameter of each kernel. All pointers are to memory that the device can reach.
struct Launch {
  const DeviceStep* steps = nullptr;
  const Part* parts = nullptr;
  const int32_t* ports = nullptr;  // the peers that this call talks to
  const Awaited* awaited = nullptr;
  uint32_t step_count = 0;
  uint32_t port_count = 0;
  uint32_t lend_count = 0;
  const PeerMemory* peers = nullptr;
  Progress* progress = nullptr;  // of (peer, block), as mailboxes
  MailboxShape shape;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  uint64_t scratch_bytes = 0;   // of each block
  uint64_t slice_elements = 1;  // of each chunk; slice s is run by block s mod (blocks of the grid)
  uint32_t slices = 0;
  Protocol protocol = Protocol::simple;
  double factor = 1;
  int32_t combined = 1;
  uint8_t op = 0;  // ReduceOp
  bool private_blocks = false;
  // Both in the host's memory. Not 0: kernels of the communicator end, whatever they wait for.
  uint64_t* stop = nullptr;
  // 1 + the peer whose message belongs to another call, written by a kernel that then raises
  // `stop`.
  uint64_t* mismatch = nullptr;
  LentBuffers lent;
  int32_t ranks = 1;
};

}  // namespace tutti::gpu
