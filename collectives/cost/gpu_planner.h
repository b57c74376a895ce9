// Chooses how a call of GPUs runs inside a kernel: by which algorithm, by which protocol, and on
// how many blocks of threads. What the planner of processors does (planner.h), with blocks in place
// of processors: a block does all steps of its slices, one slice after the other.
//
//   GPU 0   block 0  slices 0, B, 2B, ...   ╲ one link: what leaves goes one after the other,
//           block 1  slices 1, B + 1, ...   ╱ and so does what enters
//
// A few blocks are walked, with all their messages; each stands for its share of the kernel's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/cost/cost_model.h"
#include "collectives/cost/planner.h"
#include "collectives/cost/window_costs.h"
#include "collectives/gpu/call.h"

namespace tutti {

using GpuProtocol = gpu::Protocol;
inline constexpr GpuProtocol kGpuProtocols[] = {GpuProtocol::simple, GpuProtocol::lines};
std::string_view name(GpuProtocol protocol);

// Of the memory by which blocks of two GPUs talk: bytes of data in one of a connection's slots.
struct GpuSlots {
  size_t simple_bytes = gpu::kMailboxShape.simple_bytes;
  size_t lines_bytes = gpu::kMailboxShape.lines_data;
};

// How the messages of the simple protocol go: through slots, or where buffers are in windows lent,
// joined into steps that read from all ranks, or these by the switch.
enum class GpuWay : uint8_t { slots, lent, joined, by_switch };
std::string_view name(GpuWay way);

struct GpuChoice {
  const Algorithm* algorithm = nullptr;
  GpuProtocol protocol = GpuProtocol::simple;
  int32_t blocks = 1;
  GpuWay way = GpuWay::slots;
};

struct GpuCandidate {
  GpuChoice choice;
  std::string excluded;   // why it is none; empty: it is
  Prediction prediction;  // unless it is excluded; `wire` is of the busiest GPU's link
};

// Not for several threads at a time.
class GpuPlanner {
 public:
  // Of ranks that have a GPU each, all of this kind and on one host.
  GpuPlanner(const Shape& shape, const GpuCosts& costs, std::vector<const Algorithm*> more = {},
             const GpuSlots& slots = {})
      : shape_(shape), costs_(costs), more_(std::move(more)), slots_(slots) {}

  // Throws Error(unsupported) if there is none. Made once per size class, as Planner's.
  const GpuChoice& choose(const Wanted& wanted, Reach reach = Reach::slots);
  // All algorithms by both protocols, the cheapest first, those that are excluded last.
  std::vector<GpuCandidate> explain(const Wanted& wanted, Reach reach = Reach::slots);
  // On the fewest blocks with which it does not take clearly longer than with more.
  GpuCandidate price(const Algorithm& algorithm, GpuProtocol protocol, const Wanted& wanted,
                     Reach reach = Reach::slots);
  // On all blocks that have something to do, as algorithms run that a caller names. Of slots.
  Prediction predict_named(const Algorithm& algorithm, GpuProtocol protocol, const Wanted& wanted);

 private:
  using Key = std::tuple<Collective, int, uint64_t, DType, Grade, bool, Reach>;

  GpuCandidate price_slots(GpuCandidate candidate, const std::vector<Plan>& plans,
                           const Wanted& wanted) const;
  // False where the program lends nothing.
  bool price_windows(GpuCandidate& candidate, const std::vector<Plan>& plans, const Wanted& wanted,
                     Reach reach) const;
  Prediction predict_on(const std::vector<Plan>& plans, GpuProtocol protocol, int32_t blocks,
                        const Wanted& wanted) const;
  // Blocks beyond these would have nothing to do.
  int32_t useful_blocks(const Plan& plan, GpuProtocol protocol, const Wanted& wanted) const;
  // `walked` blocks stand for all.
  Machine machine_of(GpuProtocol protocol, int32_t blocks, int32_t walked) const;
  const std::vector<Plan>& plans_of(const Algorithm& algorithm, int root);

  Shape shape_;
  GpuCosts costs_;
  std::vector<const Algorithm*> more_;
  GpuSlots slots_;
  std::map<Key, GpuChoice> chosen_;
  std::map<std::pair<uint64_t, int>, std::vector<Plan>> plans_;  // by algorithm and root
};

}  // namespace tutti
