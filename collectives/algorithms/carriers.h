// Who carries whose blocks from group to group: what the hierarchical all-gather, reduce-scatter
// and all-to-all have in common.
//
// A stage is an exchange among the groups into which one group falls: at stage 0 hosts among each
// other, at the last one the ranks of an innermost group. Rank j of a group of g answers there for
// what positions j, j + g, j + 2g ... of each other group answer for already:
//
//     host A    0   1   2   3   4         rank 5 carries what goes between host B and ranks 0, 2,
//     4;
//               │ ╲ │ ╱ │ ╲ │ ╱           rank 6, what goes between it and ranks 1, 3.
//     host B    5   6                     Rank 0 carries for rank 5, rank 1 for rank 6.
//
// So each block has one carrier in each group, and passes between two groups only once, however
// many ranks they have; equally many ranks exchange with their counterparts. Two ranks exchange
// one message at most in each direction: at the stage where their groups part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/program/program.h"
#include "topology/layout.h"

namespace tutti::algorithms {

class Carriers {
 public:
  struct Group {
    int32_t first;
    int32_t size;
  };

  // Over so many of the layout's levels, the outermost ones.
  Carriers(const Shape& shape, int32_t levels);

  int32_t stages() const { return levels_ + 1; }
  // The one of this rank that falls into groups at a stage; after the last stage, the rank alone.
  Group group(int32_t stage, int32_t rank) const;
  // One rank of each other group of the stage, that of the next group first: who carries, there,
  // what this rank answers for.
  std::vector<int32_t> carriers(int32_t stage, int32_t rank) const;
  // The other way round: the ranks of other groups that this one carries for.
  std::vector<int32_t> charges(int32_t stage, int32_t rank) const;
  // The blocks (by rank) that a rank answers for within its group of a stage, ascending: its own,
  // and those that it carried at the stages before.
  std::vector<int32_t> blocks(int32_t stage, int32_t rank) const;

 private:
  template <typename Visit>
  void visit_other_groups(int32_t stage, int32_t rank, const Visit& visit) const;

  const int32_t ranks_;
  const int32_t levels_;
  const Layout layout_;
};

// The most that any rank has to do.
struct CarriersLimits {
  int32_t carriers = 0;    // at all stages
  int32_t charges = 0;     // at all stages
  int32_t blocks = 1;      // in an exchange between a rank and its carrier
  int32_t pairs = 1;       // in such an exchange: blocks, times ranks of the carrier's group
  int32_t in_transit = 0;  // such pairs that a rank carries and is no end of
};
// Those of the last layout that a thread asked for are remembered: all ranks' programs declare
// them.
CarriersLimits limits_of(const Shape& shape, int32_t levels);

// Appends a chunk, to the last range where it follows it.
void append(RangeList& ranges, ChunkRange chunk);

// For Algorithm::supports.
std::string several_groups_only(const Shape& shape);

}  // namespace tutti::algorithms
