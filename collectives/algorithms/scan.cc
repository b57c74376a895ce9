// Scan and exscan by recursive doubling: aligned groups of ranks merge in pairs.
//
//   p = 6:   0 ⇄ 1   2 ⇄ 3   4 → 5       Each rank has its group's total and its own prefix within
//            0 ⇄ 2   1 ⇄ 3               the group. The left group's total is prepended to the
//            0 → 4   1 → 5               prefixes (and totals) on the right.
//
//   rank 5 = 101b receives from 4 = 100b and then from 1 = 001b, where 1 has the total of 0-3:
//   prefix (0-3) + (4 + 5)
//
// It takes ceil(log2 p) rounds of the whole buffer. The groups that merge are those of the
// canonical tree, so prefixes are canonical for every p. Only higher ranks need the total of two
// merged groups, so the right group sends its total only if there are higher ranks.
//
// W. D. Hillis, G. L. Steele: Data Parallel Algorithms. CACM 29(12), 1986; on messages in MPICH.

#include <algorithm>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// Writes one rank's program. If `exclusive`, the prefix ends before the rank itself.
class Scan {
 public:
  Scan(const Shape& shape, bool exclusive, std::vector<Step>& steps)
      : shape_(shape), exclusive_(exclusive), steps_(steps) {}

  void emit() {
    for (half_ = 1; half_ < shape_.ranks; half_ *= 2) {
      const int32_t first = shape_.rank - shape_.rank % (2 * half_);
      const bool total_is_needed = first + 2 * half_ < shape_.ranks;
      if (shape_.rank >= first + half_) {
        merge_from_left(total_is_needed);
      } else if (shape_.rank + half_ < shape_.ranks) {
        merge_from_right(total_is_needed);
      }
    }
    if (shape_.rank == 0 && !exclusive_) steps_.push_back(copy({input(0)}, {output(0)}));
  }

 private:
  // Returns the wire format of the partner's message. A group of one rank sends its input, as
  // elements.
  Wire wire() const { return half_ == 1 ? Wire::element : Wire::accumulator; }

  void send_total(int32_t partner) {
    steps_.push_back(send({partner}, {total_}, unrounded(total_)));
  }

  void merge_from_right(bool total_is_needed) {
    const int32_t partner = shape_.rank + half_;
    send_total(partner);
    if (!total_is_needed) return;
    steps_.push_back(recv_reduce_right(partner, {total_}, {scratch(0)}, wire()));
    total_ = scratch(0);
  }

  void merge_from_left(bool total_is_needed) {
    const int32_t partner = shape_.rank - half_;
    const bool last = 2 * half_ > shape_.rank;  // true: the groups begin with rank 0
    const ChunkRange prefix = last ? output(0) : scratch(1);
    if (total_is_needed) {
      send_total(partner);
      const ChunkRange received = has_prefix() ? scratch(2) : scratch(1);
      steps_.push_back(recv(partner, {received}, wire()));
      steps_.push_back(reduce({received}, {total_}, {scratch(0)}));
      total_ = scratch(0);
      if (has_prefix()) {
        steps_.push_back(reduce({received}, {prefix_}, {prefix}));
      } else if (last) {
        steps_.push_back(copy({received}, {prefix}));
      }
    } else if (has_prefix()) {
      steps_.push_back(recv_reduce_left(partner, {prefix_}, {prefix}, wire()));
    } else {
      steps_.push_back(recv(partner, {prefix}, wire()));
    }
    prefix_ = prefix;
    is_first_ = false;
  }

  bool has_prefix() const { return !exclusive_ || !is_first_; }

  const Shape& shape_;
  bool exclusive_;
  std::vector<Step>& steps_;
  int32_t half_ = 1;
  ChunkRange total_ = input(0);
  ChunkRange prefix_ = input(0);
  bool is_first_ = true;  // no merge from the left yet
};

Program emit_scan(const Shape& shape, bool exclusive) {
  Program program{.scratch_chunks = shape.ranks > 2 ? 3 : 0,
                  .fan_out = std::max(1, doublings(shape.ranks))};
  Scan(shape, exclusive, program.steps).emit();
  return program;
}

Algorithm scan_row(Collective collective) {
  return {.collective = collective,
          .name = "recursive_doubling",
          .source = "Hillis, Steele, CACM 1986",
          .grade = Grade::canonical,
          .emit = [exclusive = collective == Collective::exscan](const Shape& shape) {
            return emit_scan(shape, exclusive);
          }};
}

}  // namespace

Algorithm scan_recursive_doubling() { return scan_row(Collective::scan); }
Algorithm exscan_recursive_doubling() { return scan_row(Collective::exscan); }

}  // namespace tutti::algorithms
