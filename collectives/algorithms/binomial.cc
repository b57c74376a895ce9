// Binomial trees: broadcast and reduce in ceil(log2 p) rounds.
//
//   broadcast, p = 8, root 0:        0 ──────→ 4          Ranks count from the root on. Each rank,
//                                    0 ──→ 2   4 ──→ 6    once it has the data, sends to those 4,
//                                    0→1   2→3 4→5   6→7  2, 1 further (below its own lowest bit).
//
//   reduce is the same backwards: aligned groups of 1, 2, 4 ... ranks merge in pairs, the lower
//   ranks' result on the left. Each group's result lies at its first rank, or at the root where
//   that is in the group. So the order is the canonical one, whoever the root.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH. IJHPCA 19(1), 2005.

#include <algorithm>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_broadcast(const Shape& shape) {
  const int32_t p = shape.ranks;
  const int32_t distance = (shape.rank - shape.root + p) % p;  // from the root
  const auto rank_at = [&](int32_t d) { return (d + shape.root) % p; };

  // The root's reach is all of them; another rank's is its lowest bit.
  int32_t reach = 1;
  while (reach < p && (distance & reach) == 0) reach *= 2;
  std::vector<int32_t> children;
  for (int32_t d = reach / 2; d > 0; d /= 2) {
    if (distance + d < p) children.push_back(rank_at(distance + d));
  }

  Program program{.fan_out = std::max(1, doublings(p))};
  const bool is_root = distance == 0;
  if (!is_root) program.steps.push_back(recv(rank_at(distance - reach), {output(0)}));
  if (!children.empty()) {
    program.steps.push_back(send(children, {is_root ? input(0) : output(0)}));
  }
  if (is_root) program.steps.push_back(copy({input(0)}, {output(0)}));
  return program;
}

Program emit_reduce(const Shape& shape) {
  Program program;
  if (shape.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = 1;
  const auto holder = [&](int32_t first, int32_t last) {
    return first <= shape.root && shape.root < last ? shape.root : first;
  };
  const ChunkRange sum = shape.rank == shape.root ? output(0) : scratch(0);
  ChunkRange mine = input(0);
  for (int32_t half = 1; half < shape.ranks; half *= 2) {
    const int32_t first = shape.rank - shape.rank % (2 * half);
    const int32_t middle = first + half;
    if (middle >= shape.ranks) continue;
    const int32_t left = holder(first, middle);
    const int32_t right = holder(middle, middle + half);
    const bool goes_right = holder(first, middle + half) == right;
    const int32_t target = goes_right ? right : left;
    if (shape.rank != target) {
      program.steps.push_back(send({target}, {mine}));
      break;
    }
    program.steps.push_back(goes_right ? recv_reduce_left(left, {mine}, {sum})
                                       : recv_reduce_right(right, {mine}, {sum}));
    mine = sum;
  }
  return program;
}

constexpr const char* kSource = "Thakur, Rabenseifner, Gropp, IJHPCA 2005";

}  // namespace

Algorithm broadcast_binomial() {
  return {.collective = Collective::broadcast,
          .name = "binomial",
          .source = kSource,
          .grade = Grade::canonical,
          .emit = emit_broadcast};
}

Algorithm reduce_binomial() {
  return {.collective = Collective::reduce,
          .name = "binomial",
          .source = kSource,
          .grade = Grade::canonical,
          .emit = emit_reduce};
}

}  // namespace tutti::algorithms
