// Who carries whose blocks from group to group: what the hierarchical all-gather, reduce-scatter
// and all-to-all have in common.
//
// At each stage (nested_groups.h), the parts of a group exchange with each other. Rank j of a part
// of g ranks answers there for what positions j, j + g, j + 2g ... of each other part answer for
// already:
//
//     host A    0   1   2   3   4     rank 5 carries what goes between host B and ranks 0, 2 and 4;
//               │ ╲ │ ╱ │ ╲ │ ╱       rank 6, what goes between it and ranks 1 and 3.
//     host B    5   6                 Rank 0 carries for rank 5, rank 1 for rank 6.
//
// So each block has one carrier in each part, and passes between two of them only once, however
// many ranks they have; where these are equally many, each exchanges with its counterparts. Two
// ranks exchange one message at most in each direction: at the stage where their ways part.
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
  // One rank of each other part, that of the next part first: who carries, there, what this rank
  // answers for.
  std::vector<int32_t> carriers(int32_t stage, int32_t rank) const;
  // The other way round: the ranks of other parts that this one carries for.
  std::vector<int32_t> charges(int32_t stage, int32_t rank) const;
  // The blocks (by rank) that a rank answers for within its group of a stage, ascending: its own,
  // and those that it carries at the stages before.
  std::vector<int32_t> blocks(int32_t stage, int32_t rank) const;

 private:
  template <typename Visit>
  void visit_other_parts(int32_t stage, int32_t rank, const Visit& visit) const;

  const NestedGroups groups_;
};

// The most that any rank has to do.
struct CarriersLimits {
  int32_t carriers = 0;    // at all stages
  int32_t charges = 0;     // at all stages
  int32_t blocks = 1;      // in an exchange between a rank and its carrier
  int32_t pairs = 1;       // in such an exchange: blocks, times ranks of the carrier's part
  int32_t in_transit = 0;  // such pairs that a rank carries and is no end of
};
// Those of the last layout that a thread asked for are remembered: all ranks' programs declare
// them.
CarriersLimits limits_of(const Shape& shape, int32_t levels);

// Appends a chunk, to the last range where it follows it.
void append(RangeList& ranges, ChunkRange chunk);

}  // namespace tutti::algorithms
