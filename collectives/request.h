// A call as a value: what to do, with which buffers. Communicator's methods make them; making them
// oneself is for calls that are prepared once and started often.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "collectives/program/program.h"
#include "collectives/reduction.h"

namespace tutti {

// Blocks of unequal length in one buffer, one per rank, in elements. Displacements are from the
// buffer's start; none: the blocks lie one behind the other.
struct Blocks {
  std::vector<uint64_t> counts;
  std::vector<uint64_t> displacements;

  static Blocks of(std::span<const uint64_t> counts, std::span<const uint64_t> displacements = {});
  bool empty() const { return counts.empty(); }
  // Of the counts, in 30 bits: ranks that disagree about blocks are found out by it.
  uint32_t hash() const;
  bool operator==(const Blocks&) const = default;
};

// Of receives: a message from whichever rank comes first, and with any tag.
inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;
inline constexpr int kLargestTag = (1 << 30) - 2;

// What is known of a message.
struct MessageInfo {
  int source = 0;
  int tag = 0;
  DType dtype = DType::u8;
  uint64_t count = 0;  // elements

  bool operator==(const MessageInfo&) const = default;
};

// In place: the same pointer as input and output. Where one of the two is a block of the other's
// size (all_gather, gather: input; reduce_scatter, scatter: output), it is this rank's block of the
// larger one. Other overlaps are not allowed.
struct Request {
  Collective collective = Collective::barrier;
  ConstBuffer input;
  Buffer output;
  Reduction op;
  int root = 0;           // send_recv: the other rank; of a receive also kAnySource
  bool sends = false;     // send_recv
  bool own = false;       // send_recv: the library's, apart from those of callers
  bool combines = false;  // of a receive: by op, with what its buffer has
  // The library's own, of what travels in another format: elements are blocks of values, and ranks
  // whose calls have as many elements, but not as many values, differ in `tail`: how many values
  // the last element of a buffer or block has (0: all), or a hash of uneven blocks' lengths.
  bool encoded = false;
  uint32_t tail = 0;
  uint64_t count = 0;   // elements of one block (of the buffer, where there are no blocks)
  bool uneven = false;  // a v-variant, with blocks that are not all of one length:
  Blocks input_blocks;
  Blocks output_blocks;

  // n elements each; the combination over all ranks.
  static Request all_reduce(ConstBuffer input, Buffer output, Reduction op);
  // input: n elements; output: size * n, rank r's at r * n.
  static Request all_gather(ConstBuffer input, Buffer output);
  // blocks: of the output, the same on every rank.
  static Request all_gatherv(ConstBuffer input, Buffer output, Blocks blocks);
  // input: size * n elements; output: n, the combination of everybody's block rank().
  static Request reduce_scatter(ConstBuffer input, Buffer output, Reduction op);
  // blocks: of the input, the same on every rank.
  static Request reduce_scatterv(ConstBuffer input, Buffer output, Blocks blocks, Reduction op);
  // n elements from root's input to everybody's output. input is read at the root only.
  static Request broadcast(ConstBuffer input, Buffer output, int root);
  // input: n elements; output: n elements, written at the root only.
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
  // Input block r is as long as output block rank() on rank r.
  static Request all_to_allv(ConstBuffer input, Blocks input_blocks, Buffer output,
                             Blocks output_blocks);
  // n elements each: the combination over ranks 0 to rank().
  static Request scan(ConstBuffer input, Buffer output, Reduction op);
  // The combination over ranks 0 to rank() - 1; rank 0's output is left alone.
  static Request exscan(ConstBuffer input, Buffer output, Reduction op);
  static Request barrier();
  // A receive takes the oldest message from its source, or from any, whose tag it accepts
  // (CallOptions::tag); a message goes to the oldest receive that accepts it. Messages of one
  // source keep their order; a receive that asks for a later one has those before it kept aside, up
  // to TUTTI_UNEXPECTED_BYTES in all. Beyond that senders are held up until messages that are kept
  // have been received, or a thread waits for such a receive, polls it or has a call follow it:
  // then it is met whatever it takes, so that nothing waits in vain (Error(system) where there is
  // no memory). dtypes must be equal, and counts unless CallOptions::may_be_shorter says otherwise.
  // A rank may send to itself: never blocks, the message is kept until it is received. A long
  // message from memory of Communicator::allocate() or register_memory() is read there by a
  // receiver of the same host, without any help of the sender; one from other memory needs the
  // sender to test or wait, or TUTTI_PROGRESS_THREAD.
  static Request send(ConstBuffer buffer, int to);
  static Request recv(Buffer buffer, int from);
  // buffer[i] = buffer[i] op what is received, when all of it is there; by any operator but avg and
  // premul_sum. The buffer is read and written then only. Of host memory.
  static Request recv_reduce(Buffer buffer, int from, Reduction op);

  // Each rank knows its own blocks only (gatherv, scatterv, all_to_allv).
  bool blocks_are_private() const {
    return uneven && collective != Collective::all_gather &&
           collective != Collective::reduce_scatter;
  }
  DType dtype() const { return output.dtype; }
};

// Fills in `count`, and displacements that were left out. Throws Error(invalid_argument,
// unsupported) that says what is wrong with the call on `rank` of `size` ranks.
void complete(Request& request, int rank, int size);

}  // namespace tutti
