// Chooses how a call on GPUs runs inside a kernel: the algorithm, the protocol and the number of
// blocks. It does for kernels what planner.h does for processors: a block of a kernel takes the
// place of a processor, and runs all steps of its slices, one slice after another.
//
//   GPU 0   block 0  slices 0, B, 2B, ...   ╲ one link: outgoing messages queue for it,
//           block 1  slices 1, B + 1, ...   ╱ and incoming messages queue as well
//
// A few blocks are walked with all their messages; each represents its share of the kernel's
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
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

// Data bytes in one slot of a connection between blocks of two GPUs, by protocol.
struct GpuSlots {
  size_t simple_bytes = 0;
  size_t lines_bytes = 0;

  static GpuSlots of(const gpu::MailboxShape& shape) {
    return {.simple_bytes = shape.simple_bytes, .lines_bytes = shape.lines_data};
  }
};

// How messages of the simple protocol are passed: through slots, or as loans if the buffers are in
// windows (`lent`). Loans may be joined into steps that read from all ranks (`joined`), and the
// switch may compute the sums of such steps (`by_switch`).
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
  std::string excluded;   // why the choice is excluded; empty for a candidate
  Prediction prediction;  // valid for a candidate; `wire` is the time of the busiest GPU's link
};

// Chooses for one communicator and caches its choices. Not thread-safe.
class GpuPlanner {
 public:
  // Plans for ranks with one GPU each, all of one class and on one host. `slots`: slot sizes; by
  // default those of the communicator's mailboxes.
  GpuPlanner(const Shape& shape, const GpuCosts& costs, std::vector<const Algorithm*> more = {},
             const std::optional<GpuSlots>& slots = {})
      : shape_(shape),
        costs_(costs),
        more_(std::move(more)),
        slots_(slots.value_or(GpuSlots::of(gpu::mailbox_shape_of(shape.ranks)))) {}

  // Returns the cheapest choice. It is computed once per size class, as in Planner. Throws
  // Error(unsupported) if no algorithm supports the call.
  const GpuChoice& choose(const CallToPlan& wanted, Reach reach = Reach::slots);
  // Returns all algorithms with both protocols, the cheapest first and the excluded ones last.
  std::vector<GpuCandidate> explain(const CallToPlan& wanted, Reach reach = Reach::slots);
  // Predicts the time with one algorithm and protocol, and with the fewest blocks at which the call
  // is not clearly slower than with more blocks.
  GpuCandidate price(const Algorithm& algorithm, GpuProtocol protocol, const CallToPlan& wanted,
                     Reach reach = Reach::slots);
  // Predicts the time with one algorithm and protocol if messages pass through slots and every
  // block that has work is used.
  Prediction predict_named(const Algorithm& algorithm, GpuProtocol protocol,
                           const CallToPlan& wanted);

 private:
  using Key = std::tuple<Collective, int, uint64_t, DType, Grade, bool, Reach>;

  GpuCandidate price_slots(GpuCandidate candidate, const std::vector<Plan>& plans,
                           const CallToPlan& wanted) const;
  // Fills in the candidate's prediction for buffers in windows. Returns false if the program lends
  // nothing.
  bool price_windows(GpuCandidate& candidate, const std::vector<Plan>& plans,
                     const CallToPlan& wanted, Reach reach) const;
  Prediction predict_on(const std::vector<Plan>& plans, GpuProtocol protocol, int32_t blocks,
                        const CallToPlan& wanted) const;
  // Returns the number of blocks that have work.
  int32_t useful_blocks(const Plan& plan, GpuProtocol protocol, const CallToPlan& wanted) const;
  // Describes the blocks as a Machine, in which `walked` blocks represent all `blocks`.
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
