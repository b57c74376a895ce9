// Circulant-graph reduce-scatter and all-reduce: skips that halve, for any p.
//
//   p = 6, skips 3, 2, 1:            distances of the blocks of which rank r has partial sums
//                                    (block b has distance b - r and ends at rank b); [] are sent
//     round 1: r sends to r + 3      0 1 2 [3 4 5]      left: 0 1 2
//     round 2: r sends to r + 2      0 1 [2]            left: 0 1
//     round 3: r sends to r + 1      0 [1]              left: 0, complete
//     all-reduce: then r sends its complete blocks to r - 1, r - 2, r - 3
//
// The skips are p / 2 rounded up, half of that rounded up, and so on to 1 (p = 7: 4, 2, 1). A
// reduce-scatter takes ceil(log2 p) rounds, and every rank sends p - 1 blocks; an all-reduce takes
// twice as many rounds and blocks. Both are minimal for every p. Sums are rounded at every hop.
//
// J. L. Träff: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms. arXiv:2410.14234,
// 2024.

#include <algorithm>
#include <set>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// A round. It moves the blocks at distances `skip` .. `reach` - 1.
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

// Appends the reduce-scatter. Partial sums of blocks at distances below `summed` are in `space`;
// for the other blocks, this rank has only its input. Afterwards, `result` holds the sum of this
// rank's block.
void circulant_reduce_scatter(const Shape& shape, Space space, ChunkRange result,
                              std::vector<Step>& steps) {
  const int32_t p = shape.ranks;
  int32_t summed = 0;  // blocks below this distance have partial sums
  const auto partial = [&](int32_t begin, int32_t end) {
    const int32_t middle = std::clamp(summed, begin, end);
    RangeList list = around(space, shape.rank + begin, middle - begin, p);
    const RangeList inputs = around(Space::input, shape.rank + middle, end - middle, p);
    list.insert(list.end(), inputs.begin(), inputs.end());
    return list;
  };
  for (const auto& [skip, reach] : rounds_of(p)) {
    const int32_t count = reach - skip;
    const RangeList sums = skip == 1 ? RangeList{result} : around(space, shape.rank, count, p);
    steps.push_back(send({(shape.rank + skip) % p}, partial(skip, reach)));
    steps.push_back(recv_reduce_left((shape.rank + p - skip) % p, partial(0, count), sums));
    summed = std::max(summed, count);
  }
}

void circulant_all_gather(const Shape& shape, std::vector<Step>& steps) {
  const int32_t p = shape.ranks;
  const std::vector<Round> rounds = rounds_of(p);
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    const auto& [skip, reach] = *round;
    const int32_t count = reach - skip;
    const int32_t first = shape.rank + skip;
    steps.push_back(
        send({(shape.rank + p - skip) % p}, around(Space::output, shape.rank, count, p)));
    steps.push_back(recv(first % p, around(Space::output, first, count, p)));
  }
}

int32_t circulant_fan_out(const Shape& shape) {
  std::set<int32_t> distances;
  for (const Round& round : rounds_of(shape.ranks)) {
    distances.insert({round.skip, shape.ranks - round.skip});
  }
  return static_cast<int32_t>(distances.size());
}

Program emit_circulant_all_reduce(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = p, .output_chunks = p};
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.chunks_per_message = p / 2;
  program.fan_out = circulant_fan_out(shape);
  circulant_reduce_scatter(shape, Space::output, output(shape.rank), program.steps);
  circulant_all_gather(shape, program.steps);
  return program;
}

Program emit_circulant_reduce_scatter(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = p};
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = p > 2 ? p : 0;
  program.chunks_per_message = p / 2;
  program.fan_out = doublings(p);
  circulant_reduce_scatter(shape, Space::scratch, output(0), program.steps);
  return program;
}

Algorithm circulant_row(Collective collective, Program (*emit)(const Shape& shape)) {
  return {.collective = collective,
          .name = "circulant",
          .source = "Träff, arXiv 2410.14234, 2024",
          .grade = Grade::same_bits,
          .emit = emit};
}

}  // namespace

Algorithm all_reduce_circulant() {
  return circulant_row(Collective::all_reduce, emit_circulant_all_reduce);
}
Algorithm reduce_scatter_circulant() {
  return circulant_row(Collective::reduce_scatter, emit_circulant_reduce_scatter);
}

}  // namespace tutti::algorithms
