// Recursive doubling all-reduce: in every round, groups of ranks merge in pairs.
//
//   p = 6:   0 ─ 1   2 ─ 3   4 ─ 5      round 1: groups of 1 exchange their results
//            0 ─ 2   1 ─ 3              round 2: groups of 2; the last group has no partner
//            0 ─ 4   1 ─ 5   and        round 3: the right group has only 2 ranks; those on the
//            0 → 2   1 → 3                       left without a partner get the right group's
//                                                result from those who have one, on a tree
//
// Each rank combines its group's result with the other group's, the left one on the left: that is
// the canonical tree, for every p. ceil(log2 p) rounds of the whole buffer, for some p one more: a
// ragged group is ready early, and its result is passed on before anything is reduced.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH. IJHPCA 19(1), 2005; the ragged group in place of their folding keeps the order.

#include <algorithm>
#include <bit>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// Two groups that merge: ranks first .. middle - 1 (a power of two of them), and `right` ranks from
// `middle` on (at most as many).
struct Pair {
  int32_t first;
  int32_t middle;
  int32_t right;
};

// What a rank of the left group does about the result of the right one, which reaches left rank i
// from right rank i where there is one, else from the left rank 1, 2, 4 ... times `right` below.
void take_from_right(const Pair& pair, int32_t rank, ChunkRange mine, std::vector<Step>& steps) {
  const int32_t i = rank - pair.first;
  const int32_t half = pair.middle - pair.first;
  int32_t source = pair.middle + i;
  int32_t covered = pair.right;  // left ranks below this one have the result before rank i sends it
  while (covered <= i) {
    source = rank - covered;
    covered *= 2;
  }
  std::vector<int32_t> targets;
  for (; i + covered < half; covered *= 2) targets.push_back(rank + covered);

  if (targets.empty()) {
    steps.push_back(recv_reduce_right(source, {mine}, {output(0)}));
  } else {
    steps.push_back(recv(source, {scratch(0)}));
    steps.push_back(send(targets, {scratch(0)}));
    steps.push_back(reduce({mine}, {scratch(0)}, {output(0)}));
  }
}

std::vector<Step> steps_of(int32_t ranks, int32_t rank) {
  std::vector<Step> steps;
  ChunkRange mine = input(0);
  for (int32_t half = 1; half < ranks; half *= 2) {
    const int32_t first = rank - rank % (2 * half);
    const int32_t middle = first + half;
    if (middle >= ranks) continue;
    const Pair pair{.first = first, .middle = middle, .right = std::min(half, ranks - middle)};
    if (rank >= middle) {
      steps.push_back(send({rank - half}, {mine}));
      steps.push_back(recv_reduce_left(rank - half, {mine}, {output(0)}));
    } else {
      if (rank - first < pair.right) steps.push_back(send({rank + half}, {mine}));
      take_from_right(pair, rank, mine, steps);
    }
    mine = output(0);
  }
  return steps;
}

Program emit(const Shape& shape) {
  Program program;
  if (shape.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = 1;
  program.steps = steps_of(shape.ranks, shape.rank);
  program.fan_out = largest_fan_out(shape.ranks, steps_of);
  return program;
}

}  // namespace

Algorithm all_reduce_recursive_doubling() {
  return {.collective = Collective::all_reduce,
          .name = "recursive_doubling",
          .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
          .grade = Grade::canonical,
          .emit = emit};
}

}  // namespace tutti::algorithms
