// Costs on GPUs by class: published figures, used until measurements replace them. They describe
// links, memories and kernels; the walk computes the time of a collective from them.
#pragma once

#include <span>
#include <string_view>

#include "collectives/cost/cost_model.h"

namespace tutti {

// Returns the names of the classes. A class describes the GPUs of one host and their links:
//
//   "a100", "h100", "b200"    one NVLink connection per GPU to a switch that reaches all others
//   "pcie3" to "pcie5"        16 lanes of PCI Express per GPU to such a switch
//   "mi300x"                  an xGMI link from each GPU to every other GPU
std::span<const std::string_view> gpu_classes();

// Returns the class of a CUDA device name ("NVIDIA H100 80GB HBM3"), or an empty string. The result
// is also empty for PCIe cards, because their names do not include the PCIe generation.
std::string_view gpu_class_of(std::string_view device_name);
// Returns the class whose costs are used for a device: gpu_class_of() or, if that is empty, the
// closest guess.
std::string_view gpu_class_for(std::string_view device_name);

// Returns the measured costs of the class `gpu` in `model`, or the published costs if it was not
// measured. If there is no class `gpu`, throws an Error(invalid_argument) that lists the classes.
GpuCosts gpu_costs(const CostModel& model, std::string_view gpu);

}  // namespace tutti
