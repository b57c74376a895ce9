// Hierarchical reduce-scatter: first inside each host, then across hosts. It is the reverse of the
// hierarchical all-gather.
//
//   2 hosts of 3 ranks      host 0: 0  1  2       host 1: 3  4  5
//
//     inside:  rank 1 sends rank 2 its blocks for 2 and 5, the ranks at position 2 of each host;
//              rank 2 then has its host's sums of these two blocks
//     across:  rank 2 sends rank 5 its host's sum of block 5
//
// If a host has NUMA nodes, and these have caches, sums are formed in each cache first, then in
// each node. As with a ring, each host, node and cache sends one sum of each block towards the
// block's destination, whatever their sizes (carriers.h). But the algorithm takes one round per
// level, and all ranks of a host send in parallel.
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
    // Receives from the carriers of this rank's blocks, beginning with the previous part.
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
