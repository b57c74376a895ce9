// What a call takes whose buffers are in windows (collectives/gpu/windows.h), inside kernels: its
// messages are lent and its steps joined as the kernel would do it, and each rank's steps are
// walked once. Slices of a block follow each other; what all blocks move shares the GPU's link.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/cost/cost.h"
#include "collectives/cost/planner.h"
#include "collectives/program/plan.h"

namespace tutti {

// What of the buffers the ranks' kernels reach. The values are in order: more is more.
enum class Reach : uint8_t {
  slots,      // nothing: messages go through slots
  windows,    // all ranks' buffers
  multicast,  // and the switch adds such elements by such an operator
};

struct WindowPrediction {
  Prediction prediction;
  bool joined = false;     // some steps read from all ranks,
  bool by_switch = false;  // and leave the sum to the switch
};

// Nothing where the program lends nothing.
std::optional<WindowPrediction> predict_in_windows(const std::vector<Plan>& plans,
                                                   const Wanted& wanted, const GpuCosts& costs,
                                                   int32_t blocks, Reach reach);

}  // namespace tutti
