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
  // Returns a 30-bit hash of the counts, by which ranks that disagree about blocks are detected.
  uint32_t hash() const;
  bool operator==(const Blocks&) const = default;
};

// Source and tag of a receive that accepts messages from any source, or with any tag.
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

// Arguments of a call. Input and output may be the same memory (in place). In all_gather and gather
// the input may be this rank's block of the output; in reduce_scatter and scatter the output may be
// this rank's block of the input. Other overlaps are not allowed. Members that a collective does
// not use are ignored.
struct Request {
  Collective collective = Collective::barrier;
  ConstBuffer input;
  Buffer output;
  Reduction op;
  int root = 0;           // rank of the root; send_recv: the other rank, or kAnySource
  bool sends = false;     // send_recv: true for a send
  bool own = false;       // send_recv: true for a message of the library itself
  bool combines = false;  // receive: true to combine the message with the buffer by `op`
  // Internal: true if the values travel in another format, and elements are blocks of values. Two
  // ranks may then pass different numbers of values with the same number of elements. `tail`
  // reveals this: it is the number of values in the last element of a buffer or block (0: the
  // element is full), or for a v-variant a hash of the blocks' lengths in values.
  bool encoded = false;
  uint32_t tail = 0;
  // Number of elements of one block, or of the buffer if there are no blocks. For a v-variant,
  // number of elements of all blocks together, or 0 if blocks_are_private().
  uint64_t count = 0;
  bool uneven = false;  // true for a v-variant, whose blocks may differ in length
  Blocks input_blocks;
  Blocks output_blocks;

  // Combines n elements of every rank's input; every rank gets the n results.
  static Request all_reduce(ConstBuffer input, Buffer output, Reduction op);
  // Gathers n elements of every rank on all ranks. `output` has size * n elements; the elements of
  // rank r start at r * n.
  static Request all_gather(ConstBuffer input, Buffer output);
  // Gathers blocks of unequal length on all ranks. `blocks`: blocks of the output, the same on
  // every rank.
  static Request all_gatherv(ConstBuffer input, Buffer output, Blocks blocks);
  // Combines blocks: rank r gets the combination of all ranks' block r. `input` has size * n
  // elements, `output` n.
  static Request reduce_scatter(ConstBuffer input, Buffer output, Reduction op);
  // As reduce_scatter(), but blocks may differ in length. `blocks`: blocks of the input, the same
  // on every rank.
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
  // elements, at the root only; `output` has n.
  static Request scatter(ConstBuffer input, Buffer output, int root);
  // As scatter(), but blocks may differ in length. `blocks`: blocks of the input, at the root only.
  static Request scatterv(ConstBuffer input, Blocks blocks, Buffer output, int root);
  // Exchanges blocks between all ranks: input block r goes to rank r, output block r comes from
  // rank r. Both buffers have size * n elements.
  static Request all_to_all(ConstBuffer input, Buffer output);
  // As all_to_all(), but blocks may differ in length. Input block r must be as long as output block
  // rank() on rank r.
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
  // Messages of one source keep their order. dtypes must be equal; counts must be equal too unless
  // CallOptions::may_be_shorter is set.
  //
  // If a receive asks for a later message, earlier messages are buffered, up to
  // TUTTI_UNEXPECTED_BYTES bytes in total. Beyond that limit, senders block until buffered messages
  // have been received. To avoid deadlocks, a receive ignores the limit if a thread waits for it or
  // polls it, or if another call depends on it (CallOptions::after). Error(system) if memory is
  // exhausted.
  //
  // A send to the own rank never blocks: the message is buffered until it is received. If a long
  // message is in memory of Communicator::allocate() or register_memory(), a receiver on the same
  // host reads it in place, and the sender need not make progress. For other memory, the sender has
  // to test or wait, or to run with TUTTI_PROGRESS_THREAD.
  static Request send(ConstBuffer buffer, int to);
  static Request recv(Buffer buffer, int from);
  // Computes buffer[i] = buffer[i] op received[i] once the whole message has arrived, for all
  // operators except avg and premul_sum. The buffer is not accessed earlier. Host memory only.
  static Request recv_reduce(Buffer buffer, int from, Reduction op);

  // Returns true if each rank passes only its own blocks, or only the root passes them (gatherv,
  // scatterv, all_to_allv).
  bool blocks_are_private() const {
    return uneven && collective != Collective::all_gather &&
           collective != Collective::reduce_scatter;
  }
  DType dtype() const { return output.dtype; }
};

// Checks the call of `rank` among `size` ranks, sets `count` and missing displacements, and
// replaces buffers that this rank does not use by empty ones. Throws Error(invalid_argument), which
// explains what is invalid.
void complete(Request& request, int rank, int size);

}  // namespace tutti
