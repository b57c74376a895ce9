// Hierarchical all-to-all: blocks cross between hosts in bundles.
//
//   2 hosts of 3 ranks:     host 0: 0  1  2       host 1: 3  4  5
//
//     inside:   rank 1 sends rank 2 its blocks for 2 and 5, the ranks at position 2 of each host
//     across:   rank 2 sends rank 5 the blocks of 0, 1 and 2 for rank 5, in one message
//
// With h hosts of g ranks, a rank sends g - 1 messages of h blocks inside and h - 1 messages of g
// blocks across, instead of g (h - 1) messages of one block: fewer and larger messages between
// hosts. If hosts have unequal sizes, one rank of a host carries the blocks for each rank of
// another host (carriers.h). Levels inside hosts and racks of hosts are not used, because each
// level costs a copy of nearly all blocks.
//
// J. L. Träff, A. Rougier: MPI Collectives and Datatypes for Hierarchical All-to-All Communication.
// EuroMPI 2014. Also NCCL's PXN.

#include <map>
#include <ranges>
#include <utility>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/carriers.h"

namespace tutti::algorithms {

namespace {

constexpr int32_t kLevels = 1;

// Finds where this rank has the block that rank `from` sends to rank `to`: in the input if this
// rank is `from`, in the output if this rank is `to`, and otherwise in a scratch slot, which is
// allotted when the block is first asked for.
class Blocks {
 public:
  explicit Blocks(int32_t rank) : rank_(rank) {}

  ChunkRange at(int32_t from, int32_t to) {
    if (from == rank_) return input(to);
    if (to == rank_) return output(from);
    const auto slot = static_cast<int32_t>(slots_.size());
    return scratch(slots_.try_emplace({from, to}, slot).first->second);
  }
  // Returns the blocks from all ranks of a group to some ranks.
  RangeList at(const NestedGroups::Group& from, const std::vector<int32_t>& to) {
    RangeList ranges;
    for (const int32_t block : to) {
      for (int32_t i = 0; i < from.size; ++i) append(ranges, at(from.first + i, block));
    }
    return ranges;
  }

 private:
  int32_t rank_;
  std::map<std::pair<int32_t, int32_t>, int32_t> slots_;
};

Program emit_all_to_all_hierarchical(const Shape& shape) {
  const int32_t rank = shape.rank;
  const Carriers carriers(NestedGroups(shape, kLevels));
  const CarriersLimits limits = limits_of(shape, kLevels);
  Program program{.input_chunks = shape.ranks,
                  .output_chunks = shape.ranks,
                  .scratch_chunks = limits.in_transit,
                  .chunks_per_message = limits.pairs,
                  .fan_out = limits.charges};
  Blocks blocks(rank);
  program.steps.push_back(copy({input(rank)}, {output(rank)}));
  for (int32_t stage = carriers.groups().stages() - 1; stage >= 0; --stage) {
    const NestedGroups::Group own = carriers.groups().group(stage + 1, rank);
    for (const int32_t charge : carriers.charges(stage, rank)) {
      program.steps.push_back(send({charge}, blocks.at(own, carriers.blocks(stage, charge))));
    }
    // Receives from the carriers of this rank's blocks, beginning with the previous part.
    const std::vector<int32_t> mine = carriers.blocks(stage, rank);
    const std::vector<int32_t> sources = carriers.carriers(stage, rank);
    for (const int32_t source : sources | std::views::reverse) {
      const NestedGroups::Group theirs = carriers.groups().group(stage + 1, source);
      program.steps.push_back(recv(source, blocks.at(theirs, mine)));
    }
  }
  return program;
}

}  // namespace

Algorithm all_to_all_hierarchical() {
  return {.collective = Collective::all_to_all,
          .name = "hierarchical",
          .source = "Träff, Rougier, EuroMPI 2014",
          .grade = Grade::canonical,
          .emit = [](const Shape& shape) { return emit_all_to_all_hierarchical(of_hosts(shape)); },
          .supports = [](const Shape& shape) { return several_groups_only(of_hosts(shape)); }};
}

}  // namespace tutti::algorithms
