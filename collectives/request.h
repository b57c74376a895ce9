// A call as a value: the operation and its buffers. Communicator's methods create requests; create
// them directly for calls that are prepared once and started often.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "collectives/program/program.h"
#include "collectives/reduction.h"

namespace tutti {

// Blocks of unequal length in one buffer, one per rank, in elements. Displacements are from the
// buffer's start; empty: the blocks are contiguous.
struct Blocks {
  std::vector<uint64_t> counts;
  std::vector<uint64_t> displacements;

  static Blocks of(std::span<const uint64_t> counts, std::span<const uint64_t> displacements = {});
  bool empty() const { return counts.empty(); }
  // Returns a 30-bit hash of the counts, which detects ranks that disagree about blocks.
  uint32_t hash() const;
  bool operator==(const Blocks&) const = default;
};

// For receives: match a message from any rank, or with any tag.
inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;
inline constexpr int kLargestTag = (1 << 30) - 2;

// Description of a message.
struct MessageInfo {
  int source = 0;
  int tag = 0;
  DType dtype = DType::u8;
  uint64_t count = 0;  // elements

  bool operator==(const MessageInfo&) const = default;
};

// A call is in place if input and output are the same pointer. If one of the two is one block of
// the other (all_gather, gather: input; reduce_scatter, scatter: output), it must be this rank's
// block of the larger one. Other overlaps are not allowed.
struct Request {
  Collective collective = Collective::barrier;
  ConstBuffer input;
  Buffer output;
  Reduction op;
  int root = 0;           // send_recv: the peer; for a receive also kAnySource
  bool sends = false;     // send_recv
  bool own = false;       // send_recv: a library-internal message, never matched with callers'
  bool combines = false;  // receive: combine by op with the contents of its buffer
  // Internal, for calls in another wire format: elements are blocks of values. Ranks whose calls
  // have equal numbers of elements but different numbers of values differ in `tail`: the number of
  // values in the last element of a buffer or block (0: all), or a hash of uneven blocks' lengths.
  bool encoded = false;
  uint32_t tail = 0;
  uint64_t count = 0;   // elements of one block (of the buffer if there are no blocks)
  bool uneven = false;  // a v-variant; its blocks:
  Blocks input_blocks;
  Blocks output_blocks;

  // n elements each. output: the combination over all ranks.
  static Request all_reduce(ConstBuffer input, Buffer output, Reduction op);
  // input: n elements; output: size * n, rank r's at r * n.
  static Request all_gather(ConstBuffer input, Buffer output);
  // blocks: of the output, equal on every rank.
  static Request all_gatherv(ConstBuffer input, Buffer output, Blocks blocks);
  // input: size * n elements; output: n, the combination of all ranks' block rank().
  static Request reduce_scatter(ConstBuffer input, Buffer output, Reduction op);
  // blocks: of the input, equal on every rank.
  static Request reduce_scatterv(ConstBuffer input, Buffer output, Blocks blocks, Reduction op);
  // n elements from the root's input to every rank's output. input is read only at the root.
  static Request broadcast(ConstBuffer input, Buffer output, int root);
  // input: n elements; output: n elements, written only at the root.
  static Request reduce(ConstBuffer input, Buffer output, Reduction op, int root);
  // input: n elements; output: size * n, at the root only.
  static Request gather(ConstBuffer input, Buffer output, int root);
  // blocks: of the output, at the root only.
  static Request gatherv(ConstBuffer input, Buffer output, Blocks blocks, int root);
  // input: size * n elements, at the root only; output: n.
  static Request scatter(ConstBuffer input, Buffer output, int root);
  // blocks: of the input, at the root only.
  static Request scatterv(ConstBuffer input, Blocks blocks, Buffer output, int root);
  // size * n elements each: input block r goes to rank r, output block r comes from rank r.
  static Request all_to_all(ConstBuffer input, Buffer output);
  // Input block r has the length of output block rank() on rank r.
  static Request all_to_allv(ConstBuffer input, Blocks input_blocks, Buffer output,
                             Blocks output_blocks);
  // n elements each. output: the combination over ranks 0 to rank().
  static Request scan(ConstBuffer input, Buffer output, Reduction op);
  // output: the combination over ranks 0 to rank() - 1; rank 0's output is not written.
  static Request exscan(ConstBuffer input, Buffer output, Reduction op);
  static Request barrier();
  // A receive matches the oldest message from its source (or from any) whose tag it accepts
  // (CallOptions::tag); a message matches the oldest receive that accepts it. Messages of one
  // source keep their order. If a receive asks for a later message, the messages before it are
  // buffered, up to TUTTI_UNEXPECTED_BYTES in all. Beyond that limit senders block until buffered
  // messages have been received. The limit does not apply while a thread waits for or polls such a
  // receive, or a call depends on it, so that nothing waits in vain (Error(system) if memory runs
  // out). dtypes must be equal, and counts as well unless CallOptions::may_be_shorter is set. A
  // send to this rank itself never blocks; the message is buffered until received. A long message
  // from memory of Communicator::allocate() or register_memory() is read in place by a receiver on
  // the same host without help from the sender. One from other memory needs the sender to test or
  // wait, or TUTTI_PROGRESS_THREAD.
  static Request send(ConstBuffer buffer, int to);
  static Request recv(Buffer buffer, int from);
  // buffer[i] = buffer[i] op received[i], once the whole message has arrived, with any operator
  // except avg and premul_sum. The buffer, in host memory, is accessed only at that time.
  static Request recv_reduce(Buffer buffer, int from, Reduction op);

  // True if each rank knows only its own blocks (gatherv, scatterv, all_to_allv).
  bool blocks_are_private() const {
    return uneven && collective != Collective::all_gather &&
           collective != Collective::reduce_scatter;
  }
  DType dtype() const { return output.dtype; }
};

// Fills in `count` and omitted displacements. Throws Error(invalid_argument) or Error(unsupported)
// that names the defect of the call on `rank` of `size` ranks.
void complete(Request& request, int rank, int size);

}  // namespace tutti
