// Circulant-graph all-reduce: reduce-scatter and all-gather over skips that halve, for any p.
//
//   p = 6, skips 3, 2, 1:            what rank r holds and sends, by distance from r of the block's
//                                    owner (block b ends at rank b):
//     round 1: r sends to r + 3      0 1 2 [3 4 5]      left: 0 1 2
//     round 2: r sends to r + 2      0 1 [2]            left: 0 1
//     round 3: r sends to r + 1      0 [1]              left: 0, complete
//     and back: r sends to r - 1, r - 2, r - 3 what it has complete
//
// Skips: half of p, rounded up, half of that, rounded up ... 1. 2 ceil(log2 p) rounds and 2(p-1)/p
// of the buffer from every rank: both the least that there can be, for every p.
//
// J. L. Träff: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms. arXiv:2410.14234,
// 2024.

#include <algorithm>
#include <set>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// The ranges that a round moves: those at distances `skip` to `reach` - 1.
struct Round {
  int32_t skip;
  int32_t reach;
};

std::vector<Round> rounds_of(int32_t ranks) {
  std::vector<Round> rounds;
  for (int32_t reach = ranks; reach > 1; reach = rounds.back().skip) {
    rounds.push_back({.skip = (reach + 1) / 2, .reach = reach});
  }
  return rounds;
}

// The blocks of ranks `rank` + begin to `rank` + end - 1, modulo p, as at most two ranges.
void append_blocks(Space space, const Shape& shape, int32_t begin, int32_t end, RangeList& list) {
  while (begin < end) {
    const int32_t first = (shape.rank + begin) % shape.ranks;
    const int32_t count = std::min(end - begin, shape.ranks - first);
    list.push_back({space, first, count});
    begin += count;
  }
}

RangeList outputs(const Shape& shape, int32_t begin, int32_t end) {
  RangeList list;
  append_blocks(Space::output, shape, begin, end, list);
  return list;
}

int32_t fan_out(const Shape& shape) {
  std::set<int32_t> distances;
  for (const Round& round : rounds_of(shape.ranks)) {
    distances.insert({round.skip, shape.ranks - round.skip});
  }
  return static_cast<int32_t>(distances.size());
}

Program emit(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = p, .output_chunks = p};
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.chunks_per_message = p / 2;
  program.fan_out = fan_out(shape);
  int32_t summed = 0;  // blocks up to this distance have partial sums, in the output
  const auto partial = [&](int32_t begin, int32_t end) {
    RangeList list = outputs(shape, begin, std::min(end, summed));
    append_blocks(Space::input, shape, std::max(begin, summed), end, list);
    return list;
  };
  const std::vector<Round> rounds = rounds_of(p);
  for (const auto& [skip, reach] : rounds) {
    const int32_t count = reach - skip;
    program.steps.push_back(send({(shape.rank + skip) % p}, partial(skip, reach)));
    program.steps.push_back(
        recv_reduce_left((shape.rank + p - skip) % p, partial(0, count), outputs(shape, 0, count)));
    summed = std::max(summed, count);
  }
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    const auto& [skip, reach] = *round;
    program.steps.push_back(send({(shape.rank + p - skip) % p}, outputs(shape, 0, reach - skip)));
    program.steps.push_back(recv((shape.rank + skip) % p, outputs(shape, skip, reach)));
  }
  return program;
}

}  // namespace

Algorithm all_reduce_circulant() {
  return {.collective = Collective::all_reduce,
          .name = "circulant",
          .source = "Träff, arXiv 2410.14234, 2024",
          .grade = Grade::same_bits,
          .emit = emit};
}

}  // namespace tutti::algorithms
