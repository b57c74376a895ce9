// Recursive multiplying all-reduce: in every round, groups of ranks merge k at a time. k = 2 is
// recursive doubling.
//
//   k = 2, p = 8, partners of rank 5 = 101b: 4 = 100b, then 7 = 111b, then 1 = 001b
//
//   k = 2, p = 6:   0 ─ 1   2 ─ 3   4 ─ 5      round 1: groups of 1 exchange their results
//                   0 ─ 2   1 ─ 3              round 2: groups of 2; the last group has no partner
//                   0 ─ 4   1 ─ 5   and        round 3: the last group has only ranks 4 and 5; they
//                   4 → 2   5 → 3                       send their result to ranks 2 and 3 as well
//
// Each rank sends its group's result to the ranks at its position in the k - 1 other groups, as one
// message, and reduces all k results in the canonical order. If k is a power of two, that is the
// canonical tree for every p. It takes ceil(log_k p) rounds of the whole buffer. An incomplete
// ("ragged") last group is ready early. If it has few ranks, other ranks forward its result before
// they need it.
//
// M. Ruefenacht, M. Bull, S. Booth: Generalisation of Recursive Doubling for AllReduce. Parallel
// Computing 69, 2017; here a ragged group replaces the paper's folding, to preserve the order. k =
// 2: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.

#include <algorithm>

#include "base/text.h"
#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// `count` groups that merge. Each has `size` ranks, counted from rank `first` on, except the last
// one, which has `ragged` ranks (1 .. size).
struct Merge {
  int32_t first;
  int32_t size;
  int32_t count;
  int32_t ragged;

  int32_t ranks_in(int32_t group) const { return group + 1 == count ? ragged : size; }
  int32_t rank(int32_t group, int32_t position) const { return first + group * size + position; }
  // Returns the wire format of a group's result. The result of a group of one rank is that rank's
  // input, which is sent as elements.
  Wire wire(int32_t group) const {
    return ranks_in(group) == 1 ? Wire::element : Wire::accumulator;
  }
};

// Indices of scratch chunks: the result of this rank's group, the ragged group's result, and the
// first of the partial sums.
constexpr int32_t kSum = 0;
constexpr int32_t kPassedOn = 1;
constexpr int32_t kFirstSlot = 2;

std::vector<Merge> merges_of(int32_t radix, int32_t ranks, int32_t rank) {
  std::vector<Merge> merges;
  for (int32_t size = 1; size < ranks; size *= radix) {
    const int32_t first = rank - rank % (size * radix);
    const int32_t here = std::min(size * radix, ranks - first);
    const int32_t count = (here + size - 1) / size;
    if (count > 1) {
      merges.push_back(
          {.first = first, .size = size, .count = count, .ragged = here - (count - 1) * size});
    }
  }
  return merges;
}

// The messages of one rank in a merge.
struct Share {
  int32_t group;               // index of the rank's group
  std::vector<int32_t> peers;  // ranks to which it sends its group's result
  // `source`: the rank from which the ragged group's result arrives; -1 in the ragged group.
  // `passed_on`: the ranks of this rank's group to which it forwards that result.
  int32_t source = -1;
  std::vector<int32_t> passed_on = {};
};

// Returns the messages of a rank. Position i of the ragged group sends its result to the k
// positions i, i + ragged ... of each other group. In those groups the result spreads: in each
// round the positions that have it forward it to k - 1 others each.
Share share_of(const Merge& merge, int32_t radix, int32_t rank) {
  const int32_t position = (rank - merge.first) % merge.size;
  const int32_t last = merge.count - 1;
  Share part{.group = (rank - merge.first) / merge.size, .peers = {}};
  const int32_t reach = part.group == last ? radix : 1;
  for (int32_t group = 0; group < merge.count; ++group) {
    for (int32_t i = 0; i < reach && group != part.group; ++i) {
      const int32_t target = position + i * merge.ragged;
      if (target < merge.ranks_in(group)) part.peers.push_back(merge.rank(group, target));
    }
  }
  if (part.group == last) return part;
  part.source = merge.rank(last, position % merge.ragged);
  int32_t covered = merge.ragged * radix;
  for (; covered <= position; covered *= radix) {
    part.source = merge.rank(part.group, position % covered);
  }
  for (; covered < merge.size; covered *= radix) {
    for (int32_t i = 1; i < radix && position + i * covered < merge.size; ++i) {
      part.passed_on.push_back(rank + i * covered);
    }
  }
  return part;
}

void append_merge(const Merge& merge, const Share& part, int32_t rank, ChunkRange mine,
                  ChunkRange sum, std::vector<Step>& steps) {
  const int32_t position = (rank - merge.first) % merge.size;
  const int32_t last = merge.count - 1;
  if (!part.peers.empty()) steps.push_back(send(part.peers, {mine}, unrounded(mine)));
  if (!part.passed_on.empty()) {
    steps.push_back(recv(part.source, {scratch(kPassedOn)}, merge.wire(last)));
    steps.push_back(send(part.passed_on, {scratch(kPassedOn)}, merge.wire(last)));
  }
  const auto contribution = [&](int32_t group) -> Contribution {
    if (group == part.group) return {.here = mine};
    if (group != last) return {.peer = merge.rank(group, position), .wire = merge.wire(group)};
    if (!part.passed_on.empty()) return {.here = scratch(kPassedOn)};
    return {.peer = part.source, .wire = merge.wire(last)};
  };
  receive_and_reduce_canonically(
      merge.count, contribution, [](int32_t slot) { return scratch(kFirstSlot + slot); }, sum,
      steps);
}

int32_t recursive_multiplying_fan_out(int32_t radix, int32_t ranks) {
  size_t most = 0;
  std::vector<int32_t> targets;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    targets.clear();
    for (const Merge& merge : merges_of(radix, ranks, rank)) {
      const Share part = share_of(merge, radix, rank);
      targets.insert(targets.end(), part.peers.begin(), part.peers.end());
      targets.insert(targets.end(), part.passed_on.begin(), part.passed_on.end());
    }
    std::ranges::sort(targets);
    const auto repeated = std::ranges::unique(targets);
    most = std::max(most, targets.size() - repeated.size());
  }
  return static_cast<int32_t>(most);
}

Program emit_recursive_multiplying(int32_t radix, const Shape& shape) {
  Program program;
  if (shape.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = kFirstSlot + slots_to_reduce(radix);
  program.fan_out = remembered(recursive_multiplying_fan_out, radix, shape.ranks);
  ChunkRange mine = input(0);
  for (const Merge& merge : merges_of(radix, shape.ranks, shape.rank)) {
    const bool all = merge.size * radix >= shape.ranks;
    const ChunkRange sum = all ? output(0) : scratch(kSum);
    append_merge(merge, share_of(merge, radix, shape.rank), shape.rank, mine, sum, program.steps);
    mine = sum;
  }
  return program;
}

}  // namespace

Algorithm all_reduce_recursive_doubling() {
  Algorithm algorithm = all_reduce_recursive_multiplying(2);
  algorithm.name = "recursive_doubling";
  algorithm.source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005";
  return algorithm;
}

Algorithm all_reduce_recursive_multiplying(int32_t radix) {
  const bool power_of_two = (radix & (radix - 1)) == 0;
  return {.collective = Collective::all_reduce,
          .name = cat("recursive_multiplying_", radix),
          .source = "Ruefenacht, Bull, Booth, Parallel Computing 2017",
          .grade = power_of_two ? Grade::canonical : Grade::same_bits,
          .emit = [radix](const Shape& shape) { return emit_recursive_multiplying(radix, shape); }};
}

}  // namespace tutti::algorithms
