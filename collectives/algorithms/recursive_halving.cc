// Recursive halving and doubling: reduce-scatter and all-gather by exchanges between partners.
//
//   p = 4, reduce-scatter,   0 1 2 3     with rank 1: keeps the sums of blocks 0 2, sends 1 3
//   at rank 0:               0   2       with rank 2: keeps the sum of block 0, sends 2
//                            0           all-gather: the same in reverse
//
//   p = 8, rank 6 = 110b:    with 7 = 111b: keeps blocks 0 2 4 6 (bit 0 is 0), sends 1 3 5 7
//                            with 4 = 100b: keeps blocks 2 6 (bits 10b), sends 0 4
//                            with 2 = 010b: keeps block 6 (bits 110b), sends 2
//
//   p = 7 = 4 + 2 + 1: each of the teams 0-3, 4-5 and 6 does such a reduce-scatter of all blocks.
//   Then the rank that holds a team's sum of block b sends that sum to rank b, which computes
//   (0 1 2 3) + ((4 5) + 6). In all-gather, rank b first sends its block to one rank of every other
//   team.
//
// In reduce-scatter the nearest partner comes first, with the most data, so aligned pairs, fours
// and eights are summed with the lower ranks on the left: the canonical tree. A rank keeps the
// blocks whose indices agree with its rank in the bits exchanged so far. Partial sums travel
// unrounded.
//
// It takes ceil(log2 p) rounds for every p. Every rank sends p - 1 blocks in a reduce-scatter, and
// receives p - 1 blocks in an all-gather. Rounds and volume are minimal. If p is far from a power
// of two, each rank of a small team sends to many ranks.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH. IJHPCA 19(1), 2005. Here distances double instead of halving, and teams replace the
// paper's folding, to preserve the order of summation.

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"

namespace tutti::algorithms {

namespace {

// Returns the blocks whose index agrees with `rank` in the bits below `distance`.
RangeList agreeing(Space space, int32_t rank, int32_t distance, int32_t ranks) {
  RangeList blocks;
  for (int32_t b = rank % distance; b < ranks; b += distance) blocks.push_back({space, b, 1});
  return blocks;
}

// Returns the rank of the team that holds the team's sum of a block (reduce-scatter), or that
// receives the block first (all-gather).
int32_t holder(const Team& team, int32_t block) { return team.first + block % team.size; }

// Returns the number of chunks in the largest message: the last one of an all-gather, or the first
// one of a reduce-scatter.
int32_t largest_message(int32_t ranks) { return (ranks + 1) / 2; }

class ReduceScatter {
 public:
  explicit ReduceScatter(const Shape& shape)
      : rank_(shape.rank), ranks_(shape.ranks), teams_(teams_of(shape.ranks)) {
    while (!teams_[team_].has(rank_)) ++team_;
  }

  Program program() {
    halve();
    if (teams_.size() > 1) {
      hand_out();
      take();
    }
    // The first row of scratch (one chunk per block) holds the team's sums. If there are more than
    // two teams, a second row holds the sum of this rank's block over all later teams.
    const int32_t sums = teams_.size() > 2 ? 2 : 1;
    return {.input_chunks = ranks_,
            .scratch_chunks = ranks_ > 2 ? sums * ranks_ : 0,
            .chunks_per_message = largest_message(ranks_),
            .fan_out = fan_out(),
            .steps = std::move(steps_)};
  }

 private:
  const Team& own() const { return teams_[team_]; }

  void halve() {
    for (int32_t distance = 1; distance < own().size; distance *= 2) {
      const int32_t partner = rank_ ^ distance;
      const RangeList given = agreeing(space_, partner, 2 * distance, ranks_);
      const RangeList kept = agreeing(space_, rank_, 2 * distance, ranks_);
      const RangeList sums = 2 * distance == ranks_
                                 ? RangeList{output(0)}
                                 : agreeing(Space::scratch, rank_, 2 * distance, ranks_);
      const Wire wire = unrounded(given[0]);
      steps_.push_back(send({partner}, given, wire));
      steps_.push_back(partner < rank_ ? recv_reduce_left(partner, kept, sums, wire)
                                       : recv_reduce_right(partner, kept, sums, wire));
      space_ = Space::scratch;
    }
  }

  void hand_out() {
    for (const ChunkRange& sum : agreeing(space_, rank_, own().size, ranks_)) {
      if (sum.first != rank_) steps_.push_back(send({sum.first}, {sum}, unrounded(sum)));
    }
  }

  // Combines the teams' sums of this rank's block: first those of later teams, then that of its own
  // team, then those of earlier teams, one by one.
  void take() {
    const size_t last = teams_.size() - 1;
    const ChunkRange mine{space_, rank_, 1};
    const ChunkRange later = scratch(ranks_ + rank_);
    const auto sum_from = [&](size_t team) { return team == 0 ? output(0) : later; };
    ChunkRange sum = mine;
    if (team_ < last) {
      sum = sum_from(team_);
      if (team_ + 1 == last) {
        steps_.push_back(recv_reduce_right(peer(last), {mine}, {sum}, wire(last)));
      } else {
        steps_.push_back(recv(peer(last), {later}, wire(last)));
        for (size_t team = last - 1; team > team_; --team) add_on_left(team, later, later);
        steps_.push_back(reduce({mine}, {later}, {sum}));
      }
    }
    for (size_t team = team_; team-- > 0;) {
      add_on_left(team, sum, sum_from(team));
      sum = sum_from(team);
    }
  }

  void add_on_left(size_t team, ChunkRange to, ChunkRange result) {
    steps_.push_back(recv_reduce_left(peer(team), {to}, {result}, wire(team)));
  }
  int32_t peer(size_t team) const { return holder(teams_[team], rank_); }
  Wire wire(size_t team) const {
    return teams_[team].size == 1 ? Wire::element : Wire::accumulator;
  }

  // Returns the largest number of ranks that a rank sends to. They are its partners, and the ranks
  // to which it sends the team's sums of their blocks.
  int32_t fan_out() const {
    int32_t most = 1;
    for (const Team& team : teams_) {
      const int32_t held = (ranks_ + team.size - 1) / team.size;
      most = std::max(most, doublings(team.size) + held - 1);
    }
    return most;
  }

  int32_t rank_;
  int32_t ranks_;
  std::vector<Team> teams_;
  size_t team_ = 0;
  Space space_ = Space::input;  // location of this rank's sums
  std::vector<Step> steps_;
};

Program emit_recursive_halving_reduce_scatter(const Shape& shape) {
  if (shape.ranks > 1) return ReduceScatter(shape).program();
  Program program;
  program.steps = {copy({input(0)}, {output(0)})};
  return program;
}

Program emit_recursive_halving_all_gather(const Shape& shape) {
  const int32_t p = shape.ranks;
  const std::vector<Team> teams = teams_of(p);
  Program program{
      .output_chunks = p,
      .chunks_per_message = largest_message(p),
      .fan_out = std::max(1, doublings(teams[0].size) + static_cast<int32_t>(teams.size()) - 1)};
  std::vector<Step>& steps = program.steps;
  const Team& own = *std::ranges::find_if(teams, [&](const Team& t) { return t.has(shape.rank); });
  steps.push_back(copy({input(0)}, {output(shape.rank)}));
  std::vector<int32_t> holders;
  for (const Team& team : teams) {
    if (!team.has(shape.rank)) holders.push_back(holder(team, shape.rank));
  }
  if (!holders.empty()) steps.push_back(send(holders, {input(0)}));
  for (const ChunkRange& block : agreeing(Space::output, shape.rank, own.size, p)) {
    if (!own.has(block.first)) steps.push_back(recv(block.first, {block}));
  }
  for (int32_t distance = own.size / 2; distance > 0; distance /= 2) {
    const int32_t partner = shape.rank ^ distance;
    steps.push_back(send({partner}, agreeing(Space::output, shape.rank, 2 * distance, p)));
    steps.push_back(recv(partner, agreeing(Space::output, partner, 2 * distance, p)));
  }
  return program;
}

constexpr const char* kHalvingSource = "Thakur, Rabenseifner, Gropp, IJHPCA 2005";

}  // namespace

Algorithm all_gather_recursive_doubling() {
  return {.collective = Collective::all_gather,
          .name = "recursive_doubling",
          .source = kHalvingSource,
          .grade = Grade::canonical,
          .emit = emit_recursive_halving_all_gather};
}

Algorithm reduce_scatter_recursive_halving() {
  return {.collective = Collective::reduce_scatter,
          .name = "recursive_halving",
          .source = kHalvingSource,
          .grade = Grade::canonical,
          .emit = emit_recursive_halving_reduce_scatter};
}

}  // namespace tutti::algorithms
