// Predicts the time of a call inside kernels whose buffers are in windows
// (collectives/gpu/windows.h). Messages are lent and steps joined as the kernel would do, and each
// rank's steps are walked once. The slices of a block follow each other; the transfers of all
// blocks share the GPU's link.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/cost/cost.h"
#include "collectives/cost/planner.h"
#include "collectives/program/plan.h"

namespace tutti {

// The memory of other ranks that the ranks' kernels can access, in increasing order.
enum class Reach : uint8_t {
  slots,      // none: messages go through slots
  windows,    // the buffers of all ranks
  multicast,  // the buffers of all ranks, and the switch supports the call's elements and operator
};

struct WindowPrediction {
  Prediction prediction;
  bool joined = false;     // some steps read from all ranks
  bool by_switch = false;  // true: the switch computes the sums of joined steps
};

// Predicts the time of a call; returns nullopt if the program lends nothing.
std::optional<WindowPrediction> predict_in_windows(const std::vector<Plan>& plans,
                                                   const CallToPlan& wanted, const GpuCosts& costs,
                                                   int32_t blocks, Reach reach);

}  // namespace tutti
