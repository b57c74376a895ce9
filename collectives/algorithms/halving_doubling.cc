// Halving-doubling all-reduce (Rabenseifner): reduce-scatter by recursive halving, all-gather by
// recursive doubling.
//
//   p = 4, the part of the buffer that rank 0 works on:
//
//     exchange with 1, keep half      ████░░░░      The nearest partner comes first, with the most
//     exchange with 2, keep half      ██░░          data. So aligned pairs, fours and eights merge,
//     sum complete                    ██            as in the canonical tree.
//     exchange with 2                 ████
//     exchange with 1                 ████████
//
//   p = 8, rank 6 = 110b: a round's partner differs in one bit, and that bit of the rank selects
//   the half to keep:
//
//     partner 7 = 111b, bit 0 is 0: keeps the lower half    chunks 0-3
//     partner 4 = 100b, bit 1 is 1: keeps the upper half    chunks 2-3
//     partner 2 = 010b, bit 2 is 1: keeps the upper half    chunk 3 = 011b (mirrored)
//
//   p = 7 = 4 + 2 + 1: each of the teams 0-3, 4-5 and 6 does such a reduce-scatter. Then rank 6
//   sends its parts to ranks 4 and 5. These add the parts to their own and send the sums to ranks 0
//   to 3, which add them: again the canonical tree. Ranks 0 to 3 send each complete part to one
//   rank of every other team, and each team does an all-gather.
//
// It takes 2 log2 p rounds if p is a power of two. Each rank sends 2(p-1)/p of the buffer in this
// case, and little more than twice the buffer otherwise. Partial sums travel unrounded.
//
// R. Rabenseifner: Optimization of Collective Reduction Operations. ICCS 2004. Here teams replace
// the paper's folding, which would change the order of summation.

#include <algorithm>
#include <utility>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"

namespace tutti::algorithms {

namespace {

// A range of chunks.
struct Part {
  int32_t first;
  int32_t count;

  Part half(bool upper) const { return {first + (upper ? count / 2 : 0), count / 2}; }
  ChunkRange in(Space space) const { return {space, first, count}; }
};

// Reverses the log2(size) lowest bits of `value`: the first partner's bit selects the largest half.
int32_t mirrored(int32_t value, int32_t size) {
  int32_t result = 0;
  for (int32_t bit = 1; bit < size; bit *= 2) {
    result = result * 2 + ((value & bit) != 0 ? 1 : 0);
  }
  return result;
}

// Returns the part of the buffer whose sum a rank has after its team's reduce-scatter.
Part part_of(const Team& team, int32_t rank, int32_t chunks) {
  const int32_t count = chunks / team.size;
  return {mirrored(rank - team.first, team.size) * count, count};
}

// Returns the rank of the team that holds this chunk at the end of the reduce-scatter.
int32_t owner(const Team& team, int32_t chunk, int32_t chunks) {
  return team.first + mirrored(chunk / (chunks / team.size), team.size);
}

class Emitter {
 public:
  explicit Emitter(const Shape& shape)
      : rank_(shape.rank), teams_(teams_of(shape.ranks)), chunks_(teams_[0].size) {
    while (!teams_[team_].has(rank_)) ++team_;
    mine_ = part_of(own(), rank_, chunks_);
  }

  Program program() {
    Program program{.input_chunks = chunks_,
                    .output_chunks = chunks_,
                    .scratch_chunks = chunks_,
                    .chunks_per_message = chunks_ / 2,
                    .fan_out = fan_out()};
    reduce_scatter();
    take_from_next_team();
    hand_on();
    spread();
    all_gather();
    program.steps = std::move(steps_);
    return program;
  }

 private:
  const Team& own() const { return teams_[team_]; }
  bool in_first() const { return team_ == 0; }
  bool in_last() const { return team_ + 1 == teams_.size(); }
  int32_t partner(int32_t distance) const {
    return own().first + ((rank_ - own().first) ^ distance);
  }
  bool upper(int32_t distance) const { return ((rank_ - own().first) & distance) != 0; }

  void reduce_scatter() {
    Part part{0, chunks_};
    for (int32_t distance = 1; distance < own().size; distance *= 2) {
      const Part kept = part.half(upper(distance));
      const ChunkRange given = part.half(!upper(distance)).in(sum_);
      const bool complete = in_first() && in_last() && 2 * distance == own().size;
      const ChunkRange sum = kept.in(complete ? Space::output : Space::scratch);
      const Wire wire = unrounded(given);
      steps_.push_back(send({partner(distance)}, {given}, wire));
      steps_.push_back(upper(distance)
                           ? recv_reduce_left(partner(distance), {kept.in(sum_)}, {sum}, wire)
                           : recv_reduce_right(partner(distance), {kept.in(sum_)}, {sum}, wire));
      sum_ = sum.space;
      part = kept;
    }
  }

  // Receives the next team's sum of this rank's part, and adds it. The next team is smaller, so its
  // ranks have larger parts, and a single one of them holds all of this rank's part.
  void take_from_next_team() {
    if (in_last()) return;
    const Team& next = teams_[team_ + 1];
    const Wire wire = next.size == 1 ? Wire::element : Wire::accumulator;
    const ChunkRange sum = mine_.in(in_first() ? Space::output : Space::scratch);
    steps_.push_back(
        recv_reduce_right(owner(next, mine_.first, chunks_), {mine_.in(sum_)}, {sum}, wire));
    sum_ = sum.space;
  }

  void hand_on() {
    if (in_first()) return;
    const Team& larger = teams_[team_ - 1];
    const int32_t count = chunks_ / larger.size;
    for (int32_t chunk = mine_.first; chunk < mine_.first + mine_.count; chunk += count) {
      const ChunkRange part{sum_, chunk, count};
      steps_.push_back(send({owner(larger, chunk, chunks_)}, {part}, unrounded(part)));
    }
  }

  // Sends complete parts from the first team to one rank of every other team. The same message
  // goes to the rank's first partner in the all-gather, which needs the same data.
  void spread() {
    if (in_first()) {
      std::vector<int32_t> targets;
      if (own().size > 1) targets.push_back(partner(own().size / 2));
      for (size_t team = 1; team < teams_.size(); ++team) {
        targets.push_back(owner(teams_[team], mine_.first, chunks_));
      }
      steps_.push_back(send(targets, {mine_.in(Space::output)}));
      return;
    }
    for (int32_t chunk = mine_.first; chunk < mine_.first + mine_.count; ++chunk) {
      steps_.push_back(recv(owner(teams_[0], chunk, chunks_), {output(chunk)}));
    }
  }

  void all_gather() {
    Part part = mine_;
    for (int32_t distance = own().size / 2; distance > 0; distance /= 2) {
      const bool sent = in_first() && 2 * distance == own().size;
      if (!sent) steps_.push_back(send({partner(distance)}, {part.in(Space::output)}));
      const int32_t first = part.first - (upper(distance) ? part.count : 0);
      const Part others{upper(distance) ? first : first + part.count, part.count};
      steps_.push_back(recv(partner(distance), {others.in(Space::output)}));
      part = {first, 2 * part.count};
    }
  }

  // Returns the largest number of ranks that a rank sends to. A rank of the first team sends to its
  // partners and to one rank of every other team. A rank of another team sends to its partners and
  // to the ranks of the preceding team that share its part.
  int32_t fan_out() const {
    int32_t most = doublings(teams_[0].size) + static_cast<int32_t>(teams_.size()) - 1;
    for (size_t team = 1; team < teams_.size(); ++team) {
      most =
          std::max(most, doublings(teams_[team].size) + teams_[team - 1].size / teams_[team].size);
    }
    return most;
  }

  int32_t rank_;
  std::vector<Team> teams_;
  int32_t chunks_;  // number of chunks: the size of the first team
  size_t team_ = 0;
  Part mine_{};
  Space sum_ = Space::input;  // location of this rank's sums
  std::vector<Step> steps_;
};

Program emit_halving_doubling(const Shape& shape) {
  if (shape.ranks > 1) return Emitter(shape).program();
  Program program;
  program.steps = {copy({input(0)}, {output(0)})};
  return program;
}

}  // namespace

Algorithm all_reduce_halving_doubling() {
  return {.collective = Collective::all_reduce,
          .name = "halving_doubling",
          .source = "Rabenseifner, ICCS 2004",
          .grade = Grade::canonical,
          .emit = emit_halving_doubling};
}

}  // namespace tutti::algorithms
