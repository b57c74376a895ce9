// One part of a joint step (joint_steps.h), run by all threads of a block: combines the inputs of
// all ranks into this rank's output or into the outputs of all ranks. If the NVLink switch supports
// the operation and the windows have a multicast address, the switch does the combining. Otherwise
// the block accesses each rank's memory in turn.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/gpu/access.h"
#include "collectives/gpu/combine.h"
#include "collectives/gpu/element.h"

namespace tutti::gpu {

// Location of a part's data. Offsets are from the buffers' starts.
struct AllRanks {
  uint64_t from = 0;
  uint64_t to = 0;           // offset in all outputs, unless dst is set
  std::byte* dst = nullptr;  // single destination of the result
  uint64_t count = 0;
  bool divides = false;
};

// --- rank by rank ---

template <bool kFast>
TUTTI_DEVICE Access access_at(std::byte* at) {
  return {.at = at, .unit = kFast ? Unit::vectors : unit_of(at)};
}

// Returns the inputs of all ranks combined, for the pack at byte offset `at` of the part.
template <typename E, bool kFast, typename Block>
TUTTI_DEVICE Pack<E> combined_inputs(Block& block, const AllRanks& all, uint64_t at,
                                     uint32_t bytes) {
  constexpr int kHeld = 4;  // number of loads in flight
  const LentBuffer& inputs = block.launch.lent.input;
  const int32_t ranks = block.launch.ranks;
  Pack<E> sum{};
  for (int32_t first = 0; first < ranks; first += kHeld) {
    Array<Vector, kHeld> held;
    TUTTI_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (first + i >= ranks) continue;
      held.at[i] =
          read<kFast>(block, access_at<kFast>(inputs.of(first + i) + all.from + at), 0, bytes);
    }
    TUTTI_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (first + i >= ranks) continue;
      const Pack<E> next = widen<E>(held.at[i]);
      const auto op = static_cast<ReduceOp>(block.launch.op);
      if (first + i == 0) {
        sum = next;
      } else if (all.divides && first + i == ranks - 1) {
        sum = mean<E>(sum, next, block.launch.combined);
      } else {
        sum = combine<E>(op, sum, next);
      }
    }
  }
  return sum;
}

// --- by the switch ---

template <typename E, typename Block>
TUTTI_DEVICE bool goes_by_switch(const Block& block, const DeviceStep& step, const AllRanks& all) {
  const LentBuffers& lent = block.launch.lent;
  const auto op = static_cast<ReduceOp>(block.launch.op);
  if (!step.by_switch || (op != ReduceOp::sum && op != ReduceOp::avg)) return false;
  const bool has_addresses =
      lent.multicast_input != nullptr && (all.dst != nullptr || lent.multicast_output != nullptr);
  if (!has_addresses || unit_of(lent.multicast_input + all.from) != Unit::vectors) return false;
  const std::byte* const to = all.dst != nullptr ? all.dst : lent.multicast_output + all.to;
  return unit_of(to) == Unit::vectors;
}

template <typename E>
TUTTI_DEVICE bool all_finite(const Pack<E>& pack) {
  bool finite = true;
  TUTTI_UNROLL
  // The comparison is false for infinities and NaN, because their difference is NaN.
  for (int i = 0; i < kPack<E>; ++i) finite &= pack.at[i] - pack.at[i] == 0;
  return finite;
}

// Returns the mean over all ranks, given the sums `added` by the switch. The switch rounds its sums
// to elements. If a sum in the pack has overflowed, the pack is recomputed rank by rank.
template <typename E, typename Block>
TUTTI_DEVICE Vector mean_of_switch(Block& block, const AllRanks& all, uint64_t at,
                                   const Vector& added) {
  const Pack<E> sum = widen<E>(added);
  return narrow<E>(all_finite<E>(sum) ? mean<E>(sum, block.launch.combined)
                                      : combined_inputs<E, true>(block, all, at, sizeof(Vector)));
}

// Processes whole vectors from `begin` to `end`. Each thread has four in flight.
template <typename E, typename Block>
TUTTI_DEVICE void add_by_switch(Block& block, const AllRanks& all, uint64_t begin, uint64_t end) {
  constexpr int kHeld = 4;
  const LentBuffers& lent = block.launch.lent;
  const std::byte* const from = lent.multicast_input + all.from;
  const uint64_t stride = block.thread.threads();
  block.thread.fence_aliases();
  for (uint64_t first = begin + block.thread.index(); first < end; first += stride * kHeld) {
    Array<Vector, kHeld> held;
    TUTTI_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const uint64_t at = first + i * stride;
      if (at < end) held.at[i] = block.thread.template load_sum<E>(from + at * sizeof(Vector));
    }
    TUTTI_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const uint64_t at = first + i * stride;
      if (at >= end) continue;
      Vector result = held.at[i];
      if (all.divides) result = mean_of_switch<E>(block, all, at * sizeof(Vector), result);
      if (all.dst != nullptr) {
        *reinterpret_cast<Vector*>(all.dst + at * sizeof(Vector)) = result;
      } else {
        block.thread.store_to_all(lent.multicast_output + all.to + at * sizeof(Vector), result);
      }
    }
  }
  block.thread.fence_aliases();
}

// Returns true if the part has vector access in all ranks' memory.
template <typename Block>
TUTTI_DEVICE bool is_aligned(const Block& block, const AllRanks& all) {
  const LentBuffers& lent = block.launch.lent;
  bool fits = all.dst == nullptr || unit_of(all.dst) == Unit::vectors;
  for (int32_t rank = 0; rank < block.launch.ranks; ++rank) {
    fits &= unit_of(lent.input.of(rank) + all.from) == Unit::vectors;
    if (all.dst == nullptr) fits &= unit_of(lent.output.of(rank) + all.to) == Unit::vectors;
  }
  return fits;
}

// Processes packs from `begin` to `end`. `kFast`: whole packs in aligned memory.
template <typename E, bool kFast, typename Block>
TUTTI_DEVICE void add_by_ranks(Block& block, const AllRanks& all, uint64_t begin, uint64_t end) {
  const LentBuffer& outputs = block.launch.lent.output;
  for (uint64_t pack = begin + block.thread.index(); pack < end; pack += block.thread.threads()) {
    const uint64_t at = pack * sizeof(Vector);
    const uint32_t bytes =
        kFast ? sizeof(Vector) : elements_in<E>(pack, all.count) * sizeof(typename E::Stored);
    const Vector result = narrow<E>(combined_inputs<E, kFast>(block, all, at, bytes));
    if (all.dst != nullptr) {
      write<kFast>(block, access_at<kFast>(all.dst + at), 0, result, bytes);
      continue;
    }
    for (int32_t rank = 0; rank < block.launch.ranks; ++rank) {
      write<kFast>(block, access_at<kFast>(outputs.of(rank) + all.to + at), 0, result, bytes);
    }
  }
}

// ---

template <typename E, typename Block>
TUTTI_DEVICE void add_all(Block& block, const DeviceStep& step, const AllRanks& all) {
  const uint64_t packs = (all.count + kPack<E> - 1) / kPack<E>;
  uint64_t done = 0;
  if constexpr (kSwitchAdds<E> && Block::TheThread::kHasMulticast) {
    if (goes_by_switch<E>(block, step, all)) {
      done = all.count / kPack<E>;
      add_by_switch<E>(block, all, 0, done);
    }
  }
  if (done == 0 && is_aligned(block, all)) {
    done = all.count / kPack<E>;
    add_by_ranks<E, true>(block, all, 0, done);
  }
  add_by_ranks<E, false>(block, all, done, packs);
}

}  // namespace tutti::gpu
