// Carriers: the ranks that forward blocks between groups in the hierarchical all-gather,
// reduce-scatter and all-to-all.
//
// At each stage (nested_groups.h), the parts of a group exchange blocks with each other. In a part
// with g ranks, the rank at position j is the carrier of the blocks that the ranks at positions j,
// j+g, j+2g ... of each other part hold after the earlier stages:
//
//     host A    0   1   2   3   4     In host B, rank 5 carries the blocks of ranks 0, 2 and 4, and
//               │ ╲ │ ╱ │ ╲ │ ╱       rank 6 carries the blocks of ranks 1 and 3. In host A, rank 0
//     host B    5   6                 carries the block of rank 5, and rank 1 that of rank 6.
//
// So each block has one carrier in each part and crosses between two parts once, however many ranks
// the parts have. If two parts have equal sizes, ranks at the same position exchange blocks. Two
// ranks exchange at most one message in each direction, at the first stage at which they are in
// different parts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/algorithms/nested_groups.h"
#include "collectives/program/program.h"

namespace tutti::algorithms {

class Carriers {
 public:
  explicit Carriers(NestedGroups groups) : groups_(std::move(groups)) {}

  const NestedGroups& groups() const { return groups_; }
  // Returns the carriers of the blocks of `rank`: one rank in each other part, beginning with the
  // next part.
  std::vector<int32_t> carriers(int32_t stage, int32_t rank) const;
  // Returns the ranks in other parts whose blocks `rank` carries. It is the inverse of carriers().
  std::vector<int32_t> charges(int32_t stage, int32_t rank) const;
  // Returns the blocks (by rank, ascending) that a rank holds within its group of a stage: its own
  // block and the blocks that it carried at earlier stages.
  std::vector<int32_t> blocks(int32_t stage, int32_t rank) const;

 private:
  template <typename Visit>
  void visit_other_parts(int32_t stage, int32_t rank, const Visit& visit) const;

  const NestedGroups groups_;
};

// Maxima over all ranks. They determine the limits that a program declares.
struct CarriersLimits {
  int32_t carriers = 0;    // carriers of one rank, summed over stages
  int32_t charges = 0;     // ranks that one rank carries for, summed over stages
  int32_t blocks = 1;      // blocks in one exchange between a rank and its carrier
  int32_t pairs = 1;       // (block, destination) pairs in one such exchange
  int32_t in_transit = 0;  // such pairs that a rank forwards for other ranks
};
// Returns the maxima for a shape. Each thread caches the result of its last layout, because every
// rank's program contains these numbers.
CarriersLimits limits_of(const Shape& shape, int32_t levels);

// Appends a chunk to `ranges`, merging it with the last range if it is adjacent.
void append(RangeList& ranges, ChunkRange chunk);

}  // namespace tutti::algorithms
