// Description of a call for a kernel, and the memory through which the ranks' kernels communicate.
// All types are plain values with the same layout on the host and on the device.
//
// For each other rank a and each block, rank b has a *mailbox* in b's own memory, which a writes.
// Messages from a to b travel through the mailbox's slots, in order:
//
//      a's kernel, block k                            b's kernel, block k
//                          b's mailbox of a
//      writes slot  ──→  [slot][slot][slot][slot]  ──→ reads slot
//      published    ──→  published                     waits for it
//      waits for it                                    consumed  ──→  in a's mailbox of b
//
//   simple   a message is written into a slot, then `published` is raised by a release; full
//            bandwidth
//   lines    a message is stored as lines of 8 data bytes, each with its flag (device/words.h): no
//            wait for `published`, half the bandwidth (NCCL calls it LL)
//
// A message by the simple protocol may be *lent*: it stays in the sender's input or output, where
// the receiver reads it, and the slot carries only its signature. The sender waits for the readers
// of its loans before it overwrites that memory, and at the end of the call.
//
// Messages of a protocol are numbered from 0 during the communicator's life, and a line's flag is
// derived from the number. Nothing is reset between calls, so a graph can launch a kernel any
// number of times.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::gpu {

enum class Protocol : uint32_t { simple = 0, lines = 1 };
inline constexpr int kProtocols = 2;

// Maximum number of threads per block. Kernels are compiled with few enough registers for it.
inline constexpr unsigned kMostThreads = 512;

inline constexpr uint64_t kLineBytes = 16;  // size of a line
inline constexpr uint64_t kLineData = 8;    // data bytes of a line

// Control words of a mailbox, in front of its slots. Words written by different kernels are on
// different cache lines.
struct Mailbox {
  alignas(128) uint64_t published;  // count of simple messages; written by the sender
  // Number of messages in the other direction that have been read; written by their reader.
  alignas(128) uint64_t consumed[kProtocols];
};

// Sizes of mailboxes, equal on all ranks of a communicator.
struct MailboxShape {
  uint32_t slots = 4;         // slots per protocol; a power of two
  uint32_t blocks = 1;        // maximum number of blocks of a kernel
  uint64_t simple_bytes = 0;  // data bytes per slot; a multiple of 16
  uint64_t lines_data = 0;    // data bytes per slot of lines; a multiple of 16

  // Size of the signature of the sender's call, which precedes a slot's data.
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
  // Returns the size of one rank's mailboxes. Mailbox (peer, block) is at (peer * blocks + block) *
  // mailbox_bytes().
  constexpr uint64_t total(int ranks) const {
    return static_cast<uint64_t>(ranks) * blocks * mailbox_bytes();
  }
};

// The largest shape, which communicators of up to 19 GPUs use.
inline constexpr MailboxShape kMailboxShape{
    .slots = 4, .blocks = 32, .simple_bytes = 64 << 10, .lines_data = 8 << 10};

// Returns the shape for a communicator of `ranks` GPUs. A GPU has mailboxes for every peer. Slots
// are halved, down to 4 KiB, until all mailboxes of a GPU fit into 192 MiB. For example, the
// mailboxes for one peer take 10 MiB among up to 19 GPUs, and 2.5 MiB among 72.
constexpr MailboxShape mailbox_shape_of(int ranks) {
  constexpr uint64_t kMostBytes = uint64_t{192} << 20;
  constexpr uint64_t kLeastSlot = 4 << 10;
  MailboxShape shape = kMailboxShape;
  while (shape.total(ranks) > kMostBytes && shape.simple_bytes > kLeastSlot) {
    shape.simple_bytes /= 2;
    shape.lines_data /= 2;
  }
  return shape;
}
// Messages smaller than this are not divided among blocks.
inline constexpr uint64_t kLeastMessageBytes = 2 << 10;

// Progress of one block of this rank with one peer; kept in this rank's device memory between
// calls.
struct Progress {
  uint64_t sent[kProtocols];
  uint64_t received[kProtocols];
};

// The mailboxes of block 0 between this rank and one of its peers.
struct PeerMemory {
  std::byte* here = nullptr;   // written by the peer
  std::byte* there = nullptr;  // written by this rank
};

enum class Where : uint8_t {
  nowhere,
  input,
  output,
  scratch,
  message,
  lent_input,   // input of the rank that the step receives from
  lent_output,  // output of the rank that the step receives from
  all_inputs,   // inputs of all ranks including this one, combined while they are read
  all_outputs,  // outputs of all ranks; each is written
};

struct Operand {
  uint64_t offset = 0;  // bytes; unused for a message, whose parts are contiguous
  Where where = Where::nowhere;
  bool widened = false;  // true: the operand holds accumulators, not elements
  bool scales = false;   // true: multiply by this rank's factor, then round to an element
};

// Computes dst = a, or dst = a op b, for `length` elements (over all slices).
struct Part {
  Operand a;
  Operand b;
  Operand dst;
  uint64_t length = 0;
};

// A step that the threads of a block run together, in order. It may receive one message and send
// one. Its result goes to `dst` and into the sent message.
struct DeviceStep {
  uint64_t signature = 0;  // signature of the step's messages
  int32_t receives = -1;   // port of the received message; -1: none
  int32_t sends = -1;      // port of the sent message; -1: none
  uint32_t first_part = 0;
  uint32_t parts = 0;
  bool divides = false;  // true: results are divided by Launch::combined and rounded to elements
  bool sends_widened = false;
  int32_t lend = -1;  // index of the loan that the step sends; -1: none
  uint32_t first_awaited = 0;
  uint32_t awaited = 0;            // number of loans in memory that the step overwrites
  bool receives_from_all = false;  // true: receives one message on each port
  bool sends_to_all = false;       // true: sends one message on each port
  bool by_switch = false;          // true: the switch may compute the sum
};

// A loan that must have been read before a step continues.
struct Awaited {
  int32_t port = 0;
  int32_t lend = 0;
};

// A buffer of a call on all ranks, as mapped by this rank.
struct LentBuffer {
  std::byte* const* windows = nullptr;  // by rank: start of the window
  uint64_t offset = 0;                  // offset of rank 0's buffer in its window
  // Bytes added to the offset for each rank: the block size if the buffer is the rank's own block
  // of the call's other buffer, else 0.
  uint64_t stride = 0;

  constexpr std::byte* of(int32_t rank) const {
    return windows[rank] + offset + static_cast<uint64_t>(rank) * stride;
  }
};

struct LentBuffers {
  LentBuffer input;
  LentBuffer output;
  // Multicast addresses for multimem instructions; null: none.
  std::byte* multicast_input = nullptr;
  std::byte* multicast_output = nullptr;
  // Hash of the windows and locations. It is part of the signature, so that ranks that lend
  // differently detect a mismatch.
  uint64_t salt = 0;
};

// The single parameter of each kernel. All pointers are accessible to the device.
struct Launch {
  const DeviceStep* steps = nullptr;
  const Part* parts = nullptr;
  const int32_t* ports = nullptr;  // ranks of the call's peers
  const Awaited* awaited = nullptr;
  uint32_t step_count = 0;
  uint32_t port_count = 0;
  uint32_t lend_count = 0;
  const PeerMemory* peers = nullptr;
  Progress* progress = nullptr;  // index: peer * blocks + block
  MailboxShape shape;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  uint64_t scratch_bytes = 0;  // bytes per block
  // Elements of each chunk in one slice. Block s mod (number of blocks) runs slice s.
  uint64_t slice_elements = 1;
  uint32_t slices = 0;
  Protocol protocol = Protocol::simple;
  double factor = 1;
  int32_t combined = 1;
  uint8_t op = 0;  // value of ReduceOp
  bool private_blocks = false;
  // Word in host memory. When it is not 0, all kernels of the communicator terminate, whatever they
  // wait for.
  uint64_t* stop = nullptr;
  // 1 + the peer whose message belongs to another call; 0: none. The kernel that writes it then
  // sets `stop`.
  uint64_t* mismatch = nullptr;
  LentBuffers lent;
  int32_t ranks = 1;
};

}  // namespace tutti::gpu
