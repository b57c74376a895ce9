// Bruck all-to-all: the set bits of a block's distance (destination minus source, mod p) determine
// its hops.
//
//   p = 6, the block from 0 to 5 (distance 5 = 101b):   0 ──→ 1 ──────────────→ 5
//                                                         +1         +4
//
//   round 0: r sends to r + 1 the blocks at distances 1 = 001b, 3 = 011b, 5 = 101b
//   round 1: r sends to r + 2 the blocks at distances 2 = 010b, 3 = 011b
//   round 2: r sends to r + 4 the blocks at distances 4 = 100b, 5 = 101b
//
// In round k every rank sends all blocks whose distance has bit k, in one message, to the rank 2^k
// further. So it takes ceil(log2 p) messages instead of p - 1, but sends about (n/2) log2 p bytes
// instead of n: it is meant for small blocks. A block's first hop reads it from the input, and its
// last hop writes it to the output, unless (in place) the block stored there has not been sent yet.
//
// J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient Algorithms for All-to-All
// Communications in Multiport Message-Passing Systems. IEEE TPDS 8(11), 1997.

#include <algorithm>
#include <bit>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

int32_t lowest_bit(int32_t n) { return n & -n; }
int32_t highest_bit(int32_t n) {
  return static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(n)));
}

Program emit_all_to_all_bruck(const Shape& shape) {
  const int32_t p = shape.ranks;
  const int32_t r = shape.rank;
  Program program{.input_chunks = p,
                  .output_chunks = p,
                  .scratch_chunks = p > 2 ? p : 0,
                  .fan_out = std::max(1, doublings(p))};
  // In place, output block (r - i) is the memory of the input block at distance p - i.
  const auto lands_at_once = [&](int32_t i) { return lowest_bit(p - i) <= highest_bit(i); };
  for (int32_t bit = 1; bit < p; bit *= 2) {
    RangeList out;
    RangeList in;
    for (int32_t i = 1; i < p; ++i) {
      if ((i & bit) == 0) continue;
      out.push_back(lowest_bit(i) == bit ? input((r + i) % p) : scratch(i));
      const bool lands = highest_bit(i) == bit && lands_at_once(i);
      in.push_back(lands ? output((r - i + p) % p) : scratch(i));
    }
    program.chunks_per_message =
        std::max(program.chunks_per_message, static_cast<int32_t>(out.size()));
    program.steps.push_back(send({(r + bit) % p}, std::move(out)));
    program.steps.push_back(recv((r - bit + p) % p, std::move(in)));
  }
  program.steps.push_back(copy({input(r)}, {output(r)}));
  for (int32_t i = 1; i < p; ++i) {
    if (!lands_at_once(i)) program.steps.push_back(copy({scratch(i)}, {output((r - i + p) % p)}));
  }
  return program;
}

}  // namespace

Algorithm all_to_all_bruck() {
  return {.collective = Collective::all_to_all,
          .name = "bruck",
          .source = "Bruck, Ho, Kipnis, Upfal, Weathersby, TPDS 1997",
          .grade = Grade::canonical,
          .emit = emit_all_to_all_bruck};
}

}  // namespace tutti::algorithms
