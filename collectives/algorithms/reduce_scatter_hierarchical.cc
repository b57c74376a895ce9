// Hierarchical reduce-scatter: inside each host first, then across. The hierarchical all-gather,
// backwards.
//
//   2 hosts of 3 ranks      host 0: 0  1  2       host 1: 3  4  5
//
//     inside:  rank 1 gives rank 2 what is for 2 and for 5, the ranks at its position in each host;
//              rank 2 has its host's sums of these two blocks then
//     across:  rank 2 gives rank 5 its host's sum of block 5
//
// Where a host falls into NUMA nodes, and these into caches, sums are made in each cache first,
// then in each node. Of each block, each host, node and cache sends one sum to the one where it
// belongs, whatever their sizes (carriers.h), as with a ring; but in one round for each level, and
// through all ranks of a host side by side.
//
// J. L. Träff: Efficient Allgather for Regular SMP-Clusters. EuroPVM/MPI 2006, reversed.

#include <ranges>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/carriers.h"

namespace tutti::algorithms {

namespace {

RangeList blocks_in(Space space, const std::vector<int32_t>& blocks) {
  RangeList ranges;
  for (const int32_t block : blocks) append(ranges, {space, block, 1});
  return ranges;
}

Program emit_reduce_scatter_hierarchical(const Shape& shape) {
  const int32_t levels = shape.layout.levels();
  const Carriers carriers(NestedGroups(shape, levels));
  const CarriersLimits limits = limits_of(shape, levels);
  Program program{.input_chunks = shape.ranks,
                  .scratch_chunks = shape.ranks,
                  .chunks_per_message = limits.blocks,
                  .fan_out = limits.charges};
  Space sums = Space::input;
  for (int32_t stage = carriers.groups().stages() - 1; stage >= 0; --stage) {
    for (const int32_t charge : carriers.charges(stage, shape.rank)) {
      program.steps.push_back(send({charge}, blocks_in(sums, carriers.blocks(stage, charge))));
    }
    // Those that turn to this rank first are those before it.
    std::vector<int32_t> sources = carriers.carriers(stage, shape.rank);
    const std::vector<int32_t> mine = carriers.blocks(stage, shape.rank);
    for (const int32_t source : sources | std::views::reverse) {
      const bool last = stage == 0 && source == sources.front();
      const RangeList sum = last ? RangeList{output(0)} : blocks_in(Space::scratch, mine);
      program.steps.push_back(recv_reduce_right(source, blocks_in(sums, mine), sum));
      sums = Space::scratch;
    }
  }
  return program;
}

}  // namespace

Algorithm reduce_scatter_hierarchical() {
  return {.collective = Collective::reduce_scatter,
          .name = "hierarchical",
          .source = "Träff, EuroPVM/MPI 2006, reversed",
          .grade = Grade::same_bits,
          .emit = emit_reduce_scatter_hierarchical,
          .supports = several_groups_only};
}

}  // namespace tutti::algorithms
