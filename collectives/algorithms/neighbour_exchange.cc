// Neighbour exchange all-gather: pairs of blocks travel both ways round a ring, in half of the
// ring's rounds.
//
//   p = 6:     0 ⇄ 1   2 ⇄ 3   4 ⇄ 5       round 1: own block; then each rank has a pair of blocks
//              5 ⇄ 0   1 ⇄ 2   3 ⇄ 4       round 2: this pair
//              0 ⇄ 1   2 ⇄ 3   4 ⇄ 5       round 3: the pair received in the previous round
//
// It takes p/2 rounds for even p, and each rank receives p - 1 blocks. Each rank communicates only
// with its two neighbours.
//
// J. Chen, L. Zhang, Y. Zhang, W. Yuan: Performance Evaluation of Allgather Algorithms on
// Terascale Linux Cluster with Fast Ethernet. HPC Asia 2005.

#include <algorithm>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_neighbour_exchange(const Shape& shape) {
  const int32_t p = shape.ranks;
  const int32_t rank = shape.rank;
  Program program{
      .output_chunks = p, .chunks_per_message = p > 2 ? 2 : 1, .fan_out = std::clamp(p - 1, 1, 2)};
  std::vector<Step>& steps = program.steps;
  steps.push_back(copy({input(0)}, {output(rank)}));
  if (p == 1) return program;
  const int32_t first_partner = rank ^ 1;
  const int32_t other_partner = (rank % 2 == 0 ? rank + p - 1 : rank + 1) % p;
  steps.push_back(send({first_partner}, {output(rank)}));
  steps.push_back(recv(first_partner, {output(first_partner)}));

  // Pairs arrive alternately from both sides, from increasing distances.
  const int32_t own_pair = rank - rank % 2;
  ChunkRange pair = output(own_pair, 2);
  for (int32_t round = 2; round <= p / 2; ++round) {
    const bool from_other = round % 2 == 0;
    const int32_t partner = from_other ? other_partner : first_partner;
    const bool downwards = from_other == (rank % 2 == 0);
    const int32_t distance = from_other ? round : round - 1;
    steps.push_back(send({partner}, {pair}));
    pair.first = (own_pair + (downwards ? p - distance : distance)) % p;
    steps.push_back(recv(partner, {pair}));
  }
  return program;
}

}  // namespace

Algorithm all_gather_neighbour_exchange() {
  return {.collective = Collective::all_gather,
          .name = "neighbour_exchange",
          .source = "Chen, Zhang, Zhang, Yuan, HPC Asia 2005",
          .grade = Grade::canonical,
          .emit = emit_neighbour_exchange,
          .supports = [](const Shape& shape) {
            const bool fits = shape.ranks == 1 || shape.ranks % 2 == 0;
            return std::string(fits ? "" : "it requires an even number of ranks");
          }};
}

}  // namespace tutti::algorithms
