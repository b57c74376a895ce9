// A call as a value: the collective, its buffers and its arguments. Communicator's methods build
// requests; a program builds them itself for calls that are prepared once and started often.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "collectives/program/program.h"
#include "collectives/reduction.h"

namespace tutti {

// Blocks of unequal length in one buffer, one per rank. Lengths and displacements are in elements;
// displacements count from the buffer's start. Without displacements the blocks are contiguous.
struct Blocks {
  std::vector<uint64_t> counts;
  std::vector<uint64_t> displacements;

  static Blocks of(std::span<const uint64_t> counts, std::span<const uint64_t> displacements = {});
  bool empty() const { return counts.empty(); }
  // Returns a 30-bit hash of the counts. Ranks compare it to detect that they disagree about
  // blocks.
  uint32_t hash() const;
  bool operator==(const Blocks&) const = default;
};

// For receives: a message from any source, or with any tag.
inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;
inline constexpr int kLargestTag = (1 << 30) - 2;

// The envelope of a message: source, tag, dtype and count.
struct MessageInfo {
  int source = 0;
  int tag = 0;
  DType dtype = DType::u8;
  uint64_t count = 0;  // in elements

  bool operator==(const MessageInfo&) const = default;
};

// In place means that input and output are the same pointer. If one of the two is one block long
// (the input of all_gather and gather, the output of reduce_scatter and scatter), in place means
// that it is this rank's block of the other buffer. Other overlaps are not allowed. Members that a
// collective does not use are ignored.
struct Request {
  Collective collective = Collective::barrier;
  ConstBuffer input;
  Buffer output;
  Reduction op;
  int root = 0;        // rank of the root; send_recv: the other rank, or for a receive kAnySource
  bool sends = false;  // send_recv: true for a send
  bool own = false;    // send_recv: internal message, separate from callers' messages
  bool combines = false;  // receive: combines the message with its buffer by op
  // Internal: true if the values travel in another format, and elements are blocks of values. Two
  // ranks may then pass different numbers of values with the same number of elements. `tail`
  // reveals this: it is the number of values in the last element of a buffer or block (0: all), or
  // a hash of uneven blocks' lengths.
  bool encoded = false;
  uint32_t tail = 0;
  uint64_t count = 0;   // elements of one block (of the buffer, if there are no blocks)
  bool uneven = false;  // a v-variant, whose blocks may differ in length:
  Blocks input_blocks;
  Blocks output_blocks;

  // Combines n elements of every rank's input; every rank gets the n results.
  static Request all_reduce(ConstBuffer input, Buffer output, Reduction op);
  // Gathers n elements of every rank on all ranks. `output` has size * n elements; the elements of
  // rank r begin at r * n.
  static Request all_gather(ConstBuffer input, Buffer output);
  // Gathers blocks of unequal length on all ranks. `blocks`: blocks of the output, the same on
  // every rank.
  static Request all_gatherv(ConstBuffer input, Buffer output, Blocks blocks);
  // Combines blocks: rank r gets the combination of all ranks' block r. `input` has size * n
  // elements, and `output` has n elements.
  static Request reduce_scatter(ConstBuffer input, Buffer output, Reduction op);
  // Combines blocks of unequal length as reduce_scatter() does. `blocks`: blocks of the input, the
  // same on every rank.
  static Request reduce_scatterv(ConstBuffer input, Buffer output, Blocks blocks, Reduction op);
  // Copies n elements from the root's input to every rank's output. Only the root's input is read.
  static Request broadcast(ConstBuffer input, Buffer output, int root);
  // Combines n elements of every rank's input; only the root's output is written.
  static Request reduce(ConstBuffer input, Buffer output, Reduction op, int root);
  // Gathers n elements of every rank at the root. `output` has size * n elements, at the root only.
  static Request gather(ConstBuffer input, Buffer output, int root);
  // Gathers blocks of unequal length at the root. `blocks`: blocks of the output, at the root only.
  static Request gatherv(ConstBuffer input, Buffer output, Blocks blocks, int root);
  // Sends a block of the root's input to each rank: rank r gets block r. `input` has size * n
  // elements, at the root only; `output` has n elements.
  static Request scatter(ConstBuffer input, Buffer output, int root);
  // Sends blocks of unequal length as scatter() does. `blocks`: blocks of the input, at the root
  // only.
  static Request scatterv(ConstBuffer input, Blocks blocks, Buffer output, int root);
  // Exchanges blocks between all ranks: input block r goes to rank r, output block r comes from
  // rank r. Both buffers have size * n elements.
  static Request all_to_all(ConstBuffer input, Buffer output);
  // Exchanges blocks of unequal length as all_to_all() does. Input block r must be as long as
  // output block rank() on rank r.
  static Request all_to_allv(ConstBuffer input, Blocks input_blocks, Buffer output,
                             Blocks output_blocks);
  // Computes an inclusive prefix reduction: n elements of each rank, combined over ranks 0 to
  // rank().
  static Request scan(ConstBuffer input, Buffer output, Reduction op);
  // Computes an exclusive prefix reduction, over ranks 0 to rank() - 1. Rank 0's output is not
  // written.
  static Request exscan(ConstBuffer input, Buffer output, Reduction op);
  static Request barrier();
  // Send and receive a message. A receive takes the oldest message from its source (or any source)
  // whose tag it accepts (CallOptions::tag); a message goes to the oldest receive that accepts it.
  // Messages of one source keep their order. dtypes must be equal, and counts unless
  // CallOptions::may_be_shorter is set.
  //
  // If a receive asks for a later message, the earlier ones are buffered, up to
  // TUTTI_UNEXPECTED_BYTES bytes in total. Beyond that limit, senders block until buffered messages
  // have been received. But a receive that a thread waits for or polls, or that another call waits
  // for (CallOptions::after), ignores the limit, so that nothing deadlocks (Error(system) if memory
  // is exhausted).
  //
  // A send to the own rank never blocks: the message is buffered until it is received. If a long
  // message is in memory of Communicator::allocate() or register_memory(), a receiver on the same
  // host reads it in place, without help of the sender. For other memory, the sender has to test or
  // wait, or to run with TUTTI_PROGRESS_THREAD.
  static Request send(ConstBuffer buffer, int to);
  static Request recv(Buffer buffer, int from);
  // Computes buffer[i] = buffer[i] op received[i] once the whole message has arrived, for all
  // operators except avg and premul_sum. The buffer is not accessed earlier. Host memory only.
  static Request recv_reduce(Buffer buffer, int from, Reduction op);

  // Returns true if each rank knows only its own blocks (gatherv, scatterv, all_to_allv).
  bool blocks_are_private() const {
    return uneven && collective != Collective::all_gather &&
           collective != Collective::reduce_scatter;
  }
  DType dtype() const { return output.dtype; }
};

// Fills in `count` and missing displacements. Throws Error(invalid_argument, unsupported) that
// explains what is invalid in the call on `rank` of `size` ranks.
void complete(Request& request, int rank, int size);

}  // namespace tutti
