// What things cost on GPUs, by class: figures that others published, until they are measured. They
// are figures of links, memories and kernels; what a collective takes is walked from them.
#pragma once

#include <span>
#include <string_view>

#include "collectives/cost/cost_model.h"

namespace tutti {

// GPUs of one host, each with one link (of several lanes) into a switch by which it reaches all
// others: "a100", "h100", "b200" by NVLink and NVSwitch, "pcie3" to "pcie5" by 16 lanes each; or
// "mi300x", with a link of xGMI to each other one.
std::span<const std::string_view> gpu_classes();

// What was measured, as `model` has it; else what was published. Throws Error(invalid_argument)
// that lists the classes.
GpuCosts gpu_costs(const CostModel& model, std::string_view gpu);

}  // namespace tutti
