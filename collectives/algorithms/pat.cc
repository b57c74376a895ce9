// PAT, parallel aggregated trees: all-gather and reduce-scatter over p binomial trees at once, one
// rooted at every rank, with few blocks on long-distance links.
//
//   the tree of rank r, p = 8:      r ──────────────→ r+4         round 1: 1 block to r + 4
//                                   r ────→ r+2       r+4 ─→ r+6  round 2: 2 blocks to r + 2
//                                   r → r+1   r+2 → r+3  ...      round 3: 4 blocks to r + 1
//
// A rank's place in a tree is its distance from the tree's root. Clearing the lowest set bit of a
// place gives the parent's place: r + 7 (111b) receives the block of r through r + 4 (100b) and r +
// 6 (110b).
//
// In all-gather every rank is at one place of each tree. In a round it forwards blocks of several
// trees, all to the same rank. In the last round of Bruck's algorithm and of recursive doubling,
// half of the data travels over a distance of p / 2; here it goes to the neighbour. Reduce-scatter
// runs the trees in reverse: neighbours exchange first, and the sum of each tree ends at its root.
// Sums are rounded at every hop.
//
//   8 ranks, at most 2 blocks in a message:     round 3 is r, r+4 → r+1, r+5  then  r+2, r+6 → ...
//
// The paper bounds the number of blocks in a message. A round then takes several messages. Each of
// these messages depends on only one message of the earlier rounds, so that rounds overlap. The
// paper also bounds the number of partial sums in flight by walking subtrees one after another.
// Here each block has its own scratch chunk (because blocks may be uneven), of which p/2 are used,
// and no subtree waits for another. PAT takes ceil(log2 p) rounds for every p, and each rank sends
// and receives p - 1 blocks.
//
// S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale.
// arXiv:2506.20252, 2025.

#include <algorithm>
#include <bit>
#include <utility>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

constexpr int32_t kMostBlocks = 8;  // maximum number of blocks in a message

// One message of an all-gather, to the rank `distance` further on. It has the blocks of the trees
// in which the receiver is at place first, first + stride ... (below p).
struct Message {
  int32_t distance;
  int32_t first;
  int32_t stride;
};

// Returns the messages in the order of an all-gather.
std::vector<Message> messages(int32_t ranks) {
  const auto padded = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(ranks)));
  // Number of places in a subtree. At most kMostBlocks subtrees are walked in parallel.
  const int32_t subtree = std::max(2, padded / kMostBlocks);
  std::vector<Message> all;
  for (int32_t distance = padded / 2; distance > 0; distance /= 2) {
    const int32_t stride = std::max(2 * distance, subtree);
    for (int32_t first = distance; first < std::min(stride, ranks); first += 2 * distance) {
      all.push_back({.distance = distance, .first = first, .stride = stride});
    }
  }
  return all;
}

// Returns the chunks of a message. `in(place, block)` returns the chunk that holds a block.
// `towards_root` is 0 at the receiver, and the distance at the sender.
template <typename In>
RangeList blocks(const Message& message, const Shape& shape, int32_t towards_root, In in) {
  RangeList list;
  for (int32_t place = message.first; place < shape.ranks; place += message.stride) {
    const int32_t here = place - towards_root;
    list.push_back(in(here, (shape.rank - here + shape.ranks) % shape.ranks));
  }
  return list;
}

Program with_limits(Program program, int32_t ranks) {
  for (const Message& message : messages(ranks)) {
    const int32_t count = (ranks - message.first + message.stride - 1) / message.stride;
    program.chunks_per_message = std::max(program.chunks_per_message, count);
  }
  program.fan_out = std::max(1, doublings(ranks));
  return program;
}

Program emit_pat_all_gather(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program = with_limits({.output_chunks = p}, p);
  program.steps.push_back(copy({input(0)}, {output(shape.rank)}));
  const auto in_output = [](int32_t /*place*/, int32_t block) { return output(block); };
  for (const Message& message : messages(p)) {
    const int32_t d = message.distance;
    program.steps.push_back(send({(shape.rank + d) % p}, blocks(message, shape, d, in_output)));
    program.steps.push_back(recv((shape.rank + p - d) % p, blocks(message, shape, 0, in_output)));
  }
  return program;
}

Program emit_pat_reduce_scatter(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program = with_limits({.input_chunks = p}, p);
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = p > 2 ? p : 0;
  std::vector<Message> backwards = messages(p);
  std::ranges::reverse(backwards);
  for (const Message& message : backwards) {
    const int32_t d = message.distance;
    // A place that has children has a child at distance 1, whose sum it adds first. So a place
    // sends a sum from scratch if it has that child, and its input otherwise.
    const auto sent = [&](int32_t place, int32_t block) {
      return place % 2 == 0 && place + 1 < p ? scratch(block) : input(block);
    };
    const auto before = [&](int32_t /*place*/, int32_t block) {
      return d == 1 ? input(block) : scratch(block);
    };
    const auto after = [&](int32_t place, int32_t block) {
      return place == 0 && 2 * d >= p ? output(0) : scratch(block);
    };
    program.steps.push_back(send({(shape.rank + p - d) % p}, blocks(message, shape, 0, sent)));
    program.steps.push_back(recv_reduce_right(
        (shape.rank + d) % p, blocks(message, shape, d, before), blocks(message, shape, d, after)));
  }
  return program;
}

Algorithm pat_row(Collective collective, Grade grade, Program (*emit)(const Shape& shape)) {
  return {.collective = collective,
          .name = "pat",
          .source = "Jeaugey, arXiv 2506.20252, 2025",
          .grade = grade,
          .emit = emit};
}

}  // namespace

Algorithm all_gather_pat() {
  return pat_row(Collective::all_gather, Grade::canonical, emit_pat_all_gather);
}
Algorithm reduce_scatter_pat() {
  return pat_row(Collective::reduce_scatter, Grade::same_bits, emit_pat_reduce_scatter);
}

}  // namespace tutti::algorithms
