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

// The class of GPUs that CUDA calls by that name ("NVIDIA H100 80GB HBM3"); empty where there is
// none. Those for PCIe slots are of none: how they are joined is not theirs to say.
std::string_view gpu_class_of(std::string_view device_name);
// That whose costs calls take: the same, or the nearest guess.
std::string_view gpu_class_for(std::string_view device_name);

// What was measured, as `model` has it; else what was published. Throws Error(invalid_argument)
// that lists the classes.
GpuCosts gpu_costs(const CostModel& model, std::string_view gpu);

}  // namespace tutti
