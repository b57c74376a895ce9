// Hierarchical all-gather: first across hosts, then inside each host.
//
//   2 hosts of 3 ranks      host 0: 0  1  2       host 1: 3  4  5
//
//     across:  0 ⇄ 3  1 ⇄ 4  2 ⇄ 5      each rank exchanges its block with its counterparts
//     inside:  0 ⇄ 1 ⇄ 2  3 ⇄ 4 ⇄ 5     each rank sends its two blocks to all others of its host
//
// If a host has NUMA nodes, and these have caches, a rank then exchanges its blocks with its
// counterparts in the other nodes, then in the other caches, then with its cache's ranks. As with a
// ring, each block enters each host, node and cache once, whatever their sizes (carriers.h). But
// the algorithm takes one round per level instead of p - 1, and all ranks of a host send in
// parallel.
//
// J. L. Träff: Efficient Allgather for Regular SMP-Clusters. EuroPVM/MPI 2006.

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/carriers.h"

namespace tutti::algorithms {

namespace {

Program emit_all_gather_hierarchical(const Shape& shape) {
  const int32_t levels = shape.layout.levels();
  const Carriers carriers(NestedGroups(shape, levels));
  const CarriersLimits limits = limits_of(shape, levels);
  Program program{.output_chunks = shape.ranks,
                  .chunks_per_message = limits.blocks,
                  .fan_out = limits.carriers};
  const auto blocks_of = [&](int32_t stage, int32_t rank) {
    RangeList ranges;
    for (const int32_t block : carriers.blocks(stage, rank)) {
      append(ranges, block == shape.rank ? input(0) : output(block));
    }
    return ranges;
  };
  for (int32_t stage = 0; stage < carriers.groups().stages(); ++stage) {
    std::vector<int32_t> readers = carriers.carriers(stage, shape.rank);
    if (!readers.empty()) {
      program.steps.push_back(send(std::move(readers), blocks_of(stage, shape.rank)));
    }
    for (const int32_t charge : carriers.charges(stage, shape.rank)) {
      program.steps.push_back(recv(charge, blocks_of(stage, charge)));
    }
  }
  program.steps.push_back(copy({input(0)}, {output(shape.rank)}));
  return program;
}

}  // namespace

Algorithm all_gather_hierarchical() {
  return {.collective = Collective::all_gather,
          .name = "hierarchical",
          .source = "Träff, EuroPVM/MPI 2006",
          .grade = Grade::canonical,
          .emit = emit_all_gather_hierarchical,
          .supports = several_groups_only};
}

}  // namespace tutti::algorithms
