// Reduce by reduce-scatter and gather: all ranks share the arithmetic, and only the root receives
// more than about n bytes.
//
//   two_shot, p = 4, root 0:       piece    0 1 2 3
//                                  rank 0   ■ → → →    rank r receives piece r of every input,
//                                       1   ← ■ → →    reduces it, and sends the sum to the root
//                                       2   ← ← ■ →
//                                       3   ← ← ← ■    2 rounds, any p
//
//   scatter_gather, p = 4:         0 ⇄ 1   2 ⇄ 3       half of the buffer each way
//                                  0 ⇄ 2   1 ⇄ 3       a quarter
//                                  0 ← 2   1 ← 3       sums of a quarter
//                                  0 ← 1               sums of half
//                                                      2 log2 p rounds, p = 2, 4, 8 ...
//
// A binomial tree's root reduces n log2 p elements and a linear algorithm's root n (p - 1); here
// every rank reduces n (p - 1)/p. In both algorithms the nearest ranks merge first, the lower one
// on the left: the canonical tree. Sums are rounded when they are complete.
//
// R. Rabenseifner: Optimization of Collective Reduction Operations. ICCS 2004.

#include <algorithm>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program partial_program(const Shape& shape) {
  Program program{.input_chunks = shape.ranks, .output_chunks = shape.ranks};
  if (shape.ranks == 1) program.steps = {copy({input(0)}, {output(0)})};
  return program;
}

Program emit_reduce_two_shot(const Shape& shape) {
  Program program = partial_program(shape);
  const int32_t p = shape.ranks;
  if (p == 1) return program;
  program.scratch_chunks = p * slots_to_reduce(p);
  program.fan_out = p - 1;
  const std::vector<int32_t> peers = others(shape);
  for (const int32_t peer : peers) program.steps.push_back(send({peer}, {input(peer)}));
  const bool is_root = shape.rank == shape.root;
  const ChunkRange sum = is_root ? output(shape.rank) : scratch(shape.rank);
  receive_and_reduce_canonically(
      p,
      [&](int32_t rank) -> Contribution {
        if (rank == shape.rank) return {.here = input(rank)};
        return {.peer = rank};
      },
      [&](int32_t slot) { return scratch(slot * p + shape.rank); }, sum, program.steps);
  if (!is_root) {
    program.steps.push_back(send({shape.root}, {sum}));
  } else {
    for (const int32_t peer : peers) program.steps.push_back(recv(peer, {output(peer)}));
  }
  return program;
}

// Returns the chunks that a rank reduces after its exchange with the rank at `distance`. Each bit
// of the rank, from the lowest up to the bit of `distance`, selects one half of the chunks selected
// before (halving_doubling.cc has an example).
ChunkRange share(Space space, int32_t rank, int32_t distance, int32_t ranks) {
  ChunkRange range{space, 0, ranks};
  for (int32_t bit = 1; bit <= distance; bit *= 2) {
    range.count /= 2;
    if ((rank & bit) != 0) range.first += range.count;
  }
  return range;
}

Program emit_scatter_gather(const Shape& shape) {
  Program program = partial_program(shape);
  const int32_t p = shape.ranks;
  const int32_t rank = shape.rank;
  if (p == 1) return program;
  program.scratch_chunks = p;
  program.chunks_per_message = p / 2;
  program.fan_out = doublings(p);
  const Space complete = rank == shape.root ? Space::output : Space::scratch;

  Space space = Space::input;
  for (int32_t distance = 1; distance < p; distance *= 2) {
    const int32_t peer = rank ^ distance;
    const ChunkRange given = share(space, peer, distance, p);
    const ChunkRange kept = share(space, rank, distance, p);
    const ChunkRange sum{2 * distance == p ? complete : Space::scratch, kept.first, kept.count};
    const Wire wire = unrounded(given);
    program.steps.push_back(send({peer}, {given}, wire));
    program.steps.push_back(peer < rank ? recv_reduce_left(peer, {kept}, {sum}, wire)
                                        : recv_reduce_right(peer, {kept}, {sum}, wire));
    space = Space::scratch;
  }
  // The gather runs in reverse: of two partners, the rank that agrees with the root in the bit of
  // `distance` receives the share of the other.
  for (int32_t distance = p / 2; distance > 0; distance /= 2) {
    const int32_t peer = rank ^ distance;
    if (((rank ^ shape.root) & distance) != 0) {
      program.steps.push_back(send({peer}, {share(complete, rank, distance, p)}));
      break;
    }
    program.steps.push_back(recv(peer, {share(complete, peer, distance, p)}));
  }
  return program;
}

Algorithm reduce_scatter_gather_row(std::string name, Program (*emit)(const Shape& shape)) {
  return {.collective = Collective::reduce,
          .name = std::move(name),
          .source = "Rabenseifner, ICCS 2004",
          .grade = Grade::canonical,
          .means = Means::completed,
          .emit = emit};
}

}  // namespace

Algorithm reduce_two_shot() { return reduce_scatter_gather_row("two_shot", emit_reduce_two_shot); }

Algorithm reduce_scatter_gather() {
  Algorithm algorithm = reduce_scatter_gather_row("scatter_gather", emit_scatter_gather);
  algorithm.supports = powers_of_two_only;
  return algorithm;
}

}  // namespace tutti::algorithms
