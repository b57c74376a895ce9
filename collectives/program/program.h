// A collective algorithm is a program, the central data structure: verify proves it, the executor
// runs it, and the planner, the simulator and the pictures read it.
//
// For one rank of p, a program is a short list of steps on numbered chunks. It depends only on rank
// numbers: it has no byte counts, no dtypes, no clock and no sockets.
//
//   Input, Output    the call's buffers, cut into chunks; sizes come from the call, and may
//                    be uneven or zero
//   Scratch          private chunks
//
// Chunks of one size class have equal length; chunks of different classes may differ in length
// (size_class()). A program that never mixes classes is therefore also correct for uneven blocks:
// the v-variants use the same programs.
//
// In a collective that reduces, 16- and 8-bit floats are summed in float, the accumulator type.
// Scratch holds accumulators, input and output hold elements, and each message declares its content
// (Wire). A value is rounded when it becomes an element again. For all other types, and in
// collectives that only move data, accumulators and elements are the same.
//
// The executor cuts every chunk into slices. Slice s of a call is the program run on slice s of
// every chunk: slices are independent instances of the program. Within a slice a step starts as
// soon as the steps whose data it needs (or overwrites) are done, even if earlier steps in the list
// are not. Only sends to one peer, receives from one peer, and local steps stay in order among
// themselves.
//
// Messages between two ranks form one FIFO per direction and lane: the k-th message that rank a
// sends to b in a slice is the k-th that b receives from a. A program must make progress when each
// such FIFO holds a single message; verify proves that it does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/layout.h"

namespace tutti {

// The values are part of the wire format.
enum class Collective : uint8_t {
  all_reduce = 0,
  all_gather = 1,
  reduce_scatter = 2,
  broadcast = 3,
  reduce = 4,
  barrier = 5,
  send_recv = 6,  // point-to-point call; has no algorithm
  gather = 7,
  scatter = 8,
  all_to_all = 9,
  scan = 10,
  exscan = 11,
};

inline constexpr Collective kCollectivesWithAlgorithms[] = {
    Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
    Collective::broadcast,  Collective::reduce,     Collective::gather,
    Collective::scatter,    Collective::all_to_all, Collective::scan,
    Collective::exscan,     Collective::barrier};

std::string_view name(Collective collective);
std::optional<Collective> parse_collective(std::string_view name);
constexpr bool has_root(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather ||
         c == Collective::scatter;
}
constexpr bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter ||
         c == Collective::reduce || c == Collective::scan || c == Collective::exscan;
}
// Return true if the input, the output, or either of them consists of one block per rank.
constexpr bool has_input_blocks(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::scatter || c == Collective::all_to_all;
}
constexpr bool has_output_blocks(Collective c) {
  return c == Collective::all_gather || c == Collective::gather || c == Collective::all_to_all;
}
constexpr bool has_blocks(Collective c) { return has_input_blocks(c) || has_output_blocks(c); }

enum class Space : uint8_t { input, output, scratch };

// Chunks first .. first + count - 1 of one space.
struct ChunkRange {
  Space space = Space::input;
  int32_t first = 0;
  int32_t count = 1;
  bool operator==(const ChunkRange&) const = default;
};
using RangeList = std::vector<ChunkRange>;

enum class StepKind : uint8_t {
  send,         // one message with the contents of src to each peer
  recv,         // one message from peers[0] into dst
  recv_reduce,  // dst = received op src, or src op received
  reduce,       // dst = src op src2
  copy,         // dst = src
};

// Content of a message: elements, or unrounded accumulators of 16- and 8-bit floats.
enum class Wire : uint8_t { element, accumulator };

// One step. All range lists of a step have the same number of chunks, pairwise of the same size
// class. A send or recv with an empty range list is a message without data (a token); a token is
// sent when all earlier recv steps of the rank are done. Operand order is part of the program: it
// determines the bits of floating-point results.
struct Step {
  StepKind kind = StepKind::copy;
  std::vector<int32_t> peers;
  RangeList src;
  RangeList src2;
  RangeList dst;
  bool received_on_left = false;  // for recv_reduce only
  Wire wire = Wire::element;      // format of the message; equal at both ends
  // True if input that this step reads is multiplied by this rank's factor and rounded to an
  // element.
  bool scales = false;
  // True if the written value is divided, before it is rounded to an element, by the number of
  // ranks that it combines.
  bool divides = false;
};

// One rank's program. The chunk counts and the two limits are the same on every rank.
//
//   all_reduce, broadcast, reduce,  input and output: C chunks, chunk i of both is the same part
//     scan, exscan
//   all_gather, gather              input: k chunks; output: p * k chunks
//   reduce_scatter, scatter         input: p * k chunks; output: k chunks
//   all_to_all                      input and output: p * k chunks
//   barrier                         none
//
// In a buffer of p * k chunks, the k chunks that come from or go to rank r start at chunk r * k.
//
// In an in-place call, input and output alias accordingly, and programs must be correct in that
// case: in program order, they read an input chunk before they write an output chunk that may be
// the same memory. The output of reduce and gather and the input of broadcast and scatter exist
// only at the root. exscan does not write rank 0's output.
struct Program {
  int32_t input_chunks = 1;
  int32_t output_chunks = 1;
  int32_t scratch_chunks = 0;
  int32_t chunks_per_message = 1;  // largest number of chunks in any rank's message
  int32_t fan_out = 1;             // largest number of distinct ranks that any rank sends to
  std::vector<Step> steps;
};

struct Shape {
  int32_t ranks = 1;
  int32_t rank = 0;
  int32_t root = 0;  // valid if has_root()
  Layout layout;     // layout of these ranks

  bool operator==(const Shape&) const = default;
};

// Returns the number of chunks of one block: C, or k if there are blocks.
int32_t chunks_per_block(Collective collective, const Program& program, int32_t ranks);

// Returns the number of size classes: C, or p * k (block by block) if the larger buffer has blocks.
// The class of scratch chunk j is j modulo the number of classes. all_to_all has k classes, because
// its algorithms forward chunks only when all blocks have the same length.
int32_t size_classes(Collective collective, const Program& program, int32_t ranks);
int32_t size_class(Collective collective, const Program& program, const Shape& shape, Space space,
                   int32_t chunk);

// Returns a number that identifies the location of a chunk in an in-place call: chunks with equal
// numbers may be the same memory.
int64_t location(Collective collective, const Program& program, const Shape& shape, Space space,
                 int32_t chunk);

// Calls visit(space, chunk) for each chunk of the list, in order.
template <typename Visit>
void for_each_chunk(const RangeList& ranges, Visit visit) {
  for (const ChunkRange& range : ranges) {
    for (int32_t i = 0; i < range.count; ++i) visit(range.space, range.first + i);
  }
}

// Functions that make ranges and steps, so that an algorithm's source reads like its description.
ChunkRange input(int32_t first, int32_t count = 1);
ChunkRange output(int32_t first, int32_t count = 1);
ChunkRange scratch(int32_t first, int32_t count = 1);
Step send(std::vector<int32_t> peers, RangeList src, Wire wire = Wire::element);
Step recv(int32_t peer, RangeList dst, Wire wire = Wire::element);
// Computes dst = received op src.
Step recv_reduce_left(int32_t peer, RangeList src, RangeList dst, Wire wire = Wire::element);
// Computes dst = src op received.
Step recv_reduce_right(int32_t peer, RangeList src, RangeList dst, Wire wire = Wire::element);
Step reduce(RangeList a, RangeList b, RangeList dst);  // dst = a op b
Step copy(RangeList src, RangeList dst);
// Returns true for steps that neither send nor receive.
constexpr bool is_local(StepKind kind) {
  return kind == StepKind::reduce || kind == StepKind::copy;
}
constexpr bool receives(StepKind kind) {
  return kind == StepKind::recv || kind == StepKind::recv_reduce;
}
// Returns the wire format that carries a partial result without rounding: accumulators from
// scratch, elements from elsewhere (an input or a complete result).
constexpr Wire unrounded(const ChunkRange& range) {
  return range.space == Space::scratch ? Wire::accumulator : Wire::element;
}

// Returns true if `send` sends exactly what `receive` receives, in the same form in memory and in
// the message. An executor can then do both in one pass.
bool can_forward(const Step& receive, const Step& send);

std::string to_string(const ChunkRange& range);  // "output[2-5]"
std::string to_string(const Step& step);

}  // namespace tutti
