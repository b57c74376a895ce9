// Swing all-reduce: reduce-scatter and all-gather with partners on alternating sides.
//
//   p = 8, partners of rank 0:     round 1   0 ─ 1                   distances 1, -1, 3, -5, 11 ...
//                                  round 2   7 ─ 0  (−1)             from even ranks, the opposite
//                                  round 3   0 ───── 3               from odd ones (5: 4, 6, 2)
//
// It has halving-doubling's rounds and volume for powers of two. On a ring or torus, partners are a
// third closer (1, 1, 3, 5 instead of 1, 2, 4, 8), so fewer messages share a link.
//
// Each block is summed on a tree. The tree is found by going backwards through the rounds from the
// block's owner: each rank joins it at the first opportunity. This also works for even p that are
// not powers of two: a rank that could be reached twice joins once.
//
// D. De Sensi, T. Bonato, D. Saam, T. Hoefler: Swing: Short-cutting Rings for Higher Bandwidth
// Allreduce. NSDI 2024.

#include <algorithm>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

struct Swing {
  explicit Swing(int32_t p) : ranks(p), rounds(doublings(p)) {
    for (int32_t round = 0, distance = 1; round < rounds; ++round) {
      distances.push_back(distance);
      distance = 1 - 2 * distance;
    }
    find_tree();
    chunk.assign(ranks, -1);
    int32_t placed = 0;
    number_chunks(0, 0, placed);
  }

  int32_t wrapped(int32_t rank) const { return (rank % ranks + ranks) % ranks; }
  int32_t partner(int32_t rank, int32_t round) const {
    return wrapped(rank % 2 == 0 ? rank + distances[round] : rank - distances[round]);
  }

  // Returns the round in which `rank` sends its sum of `owner`'s block. The tree of every even
  // owner has the same form, and that of every odd owner is its mirror image.
  int32_t sent_in(int32_t rank, int32_t owner) const {
    return tree[wrapped(owner % 2 == 0 ? rank - owner : owner - rank)];
  }

  // Returns the chunks that `rank` sends in a round, ascending.
  std::vector<int32_t> chunks_sent(int32_t rank, int32_t round) const {
    std::vector<int32_t> chunks;
    for (int32_t owner = 0; owner < ranks; ++owner) {
      if (owner != rank && sent_in(rank, owner) == round) chunks.push_back(chunk[owner]);
    }
    std::ranges::sort(chunks);
    return chunks;
  }

  int32_t ranks;
  int32_t rounds;
  std::vector<int32_t> distances;
  std::vector<int32_t> tree;   // by rank: the round in which it sends its sum of block 0
  std::vector<int32_t> chunk;  // by rank: index of the chunk that the rank owns

 private:
  void find_tree() {
    tree.assign(ranks, -1);
    tree[0] = rounds;
    for (int32_t round = rounds - 1; round >= 0; --round) {
      for (int32_t rank = 0; rank < ranks; ++rank) {
        if (tree[rank] < 0 && tree[partner(rank, round)] > round) tree[rank] = round;
      }
    }
  }

  // Numbers the chunks so that neighbours in the tree get neighbouring chunks. A message then has
  // few ranges: a single one if p is a power of two.
  void number_chunks(int32_t rank, int32_t round, int32_t& placed) {
    if (round < rounds) {
      number_chunks(rank, round + 1, placed);
      number_chunks(partner(rank, round), round + 1, placed);
    } else if (chunk[rank] < 0) {
      chunk[rank] = placed++;
    }
  }
};

// Converts ascending chunks to ranges; `space_of` returns the space of a chunk.
template <typename SpaceOf>
RangeList ranges(const std::vector<int32_t>& chunks, SpaceOf space_of) {
  RangeList list;
  for (const int32_t chunk : chunks) {
    const Space space = space_of(chunk);
    if (!list.empty() && list.back().space == space &&
        list.back().first + list.back().count == chunk) {
      ++list.back().count;
    } else {
      list.push_back({space, chunk, 1});
    }
  }
  return list;
}

Program emit_swing(const Shape& shape) {
  const int32_t p = shape.ranks;
  const int32_t rank = shape.rank;
  Program program{.input_chunks = p, .output_chunks = p};
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  const Swing swing(p);
  program.fan_out = 0;
  std::vector<bool> is_partner(p, false);
  std::vector<bool> summed(p, false);  // by chunk: true if a partial sum is in the output
  const auto partial = [&](int32_t chunk) { return summed[chunk] ? Space::output : Space::input; };
  const auto complete = [](int32_t) { return Space::output; };
  for (int32_t round = 0; round < swing.rounds; ++round) {
    const int32_t peer = swing.partner(rank, round);
    const std::vector<int32_t> given = swing.chunks_sent(rank, round);
    const std::vector<int32_t> kept = swing.chunks_sent(peer, round);
    program.steps.push_back(send({peer}, ranges(given, partial)));
    const RangeList own = ranges(kept, partial);
    const RangeList sum = ranges(kept, complete);
    program.steps.push_back(peer < rank ? recv_reduce_left(peer, own, sum)
                                        : recv_reduce_right(peer, own, sum));
    for (const int32_t chunk : kept) summed[chunk] = true;
    program.chunks_per_message =
        std::max(program.chunks_per_message, static_cast<int32_t>(given.size()));
    if (!is_partner[peer]) ++program.fan_out;
    is_partner[peer] = true;
  }
  for (int32_t round = swing.rounds - 1; round >= 0; --round) {
    const int32_t peer = swing.partner(rank, round);
    program.steps.push_back(send({peer}, ranges(swing.chunks_sent(peer, round), complete)));
    program.steps.push_back(recv(peer, ranges(swing.chunks_sent(rank, round), complete)));
  }
  return program;
}

std::string even_only(const Shape& shape) {
  const bool fits = shape.ranks == 1 || shape.ranks % 2 == 0;
  return fits ? ""
              : "it requires an even number of ranks: odd and even ranks swing in opposite "
                "directions";
}

}  // namespace

Algorithm all_reduce_swing() {
  return {.collective = Collective::all_reduce,
          .name = "swing",
          .source = "De Sensi et al., NSDI 2024",
          .grade = Grade::same_bits,
          .emit = emit_swing,
          .supports = even_only};
}

}  // namespace tutti::algorithms
