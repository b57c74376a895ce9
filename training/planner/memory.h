// Memory of a rank at the peak of a step, by kind.
#pragma once

#include <cstdint>
#include <vector>

#include "training/planner/job.h"

namespace tutti::training::planner {

inline constexpr double kGiB = 1 << 30;

// Definitions of memory in published tables.
enum class MemoryMeasure : uint8_t {
  all,                  // bytes
  activations,          // bytes, of the first stage
  part_of_activations,  // percent of those without recomputation and sequence parallelism
};

// Bytes that a program keeps, and the definition of memory to compare with.
struct MemoryRules {
  double parameter = 2;  // bytes per parameter
  double gradient = 4;
  double states = 12;       // optimizer states with the master copy
  double logit = 6;         // bytes per logit: 16 bits, and 32 for the loss
  bool last_stage = false;  // measured on the last stage, not on the largest
  MemoryMeasure measure = MemoryMeasure::all;
  double context = 0.1 * kGiB;  // driver context, workspaces
  double gaps = 0;              // allocator fragmentation, as a fraction of all else
};

MemoryRules memory_rules(Software software);

struct MemoryUse {  // bytes
  double parameters = 0;
  double gradients = 0;
  double states = 0;
  double activations = 0;  // at the schedule's peak
  double buffers = 0;      // gathered parameters, logits
  double other = 0;        // context and fragmentation
  double total() const { return parameters + gradients + states + activations + buffers + other; }
};

// Memory by the rules' definition: bytes or percent.
double measured_memory(const Job& job, const Layout& layout, const MemoryRules& rules);
// Memory of the stage with the largest need, or of the last stage (rules.last_stage).
MemoryUse memory_use(const Job& job, const Layout& layout, const MemoryRules& rules = {});

// Memory of each stage.
std::vector<MemoryUse> memory_by_stage(const Job& job, const Layout& layout,
                                       const MemoryRules& rules = {});

// 90% interval of a predicted peak.
Interval memory_interval(double bytes);

// Bytes of activations that a layer keeps for backward of one micro-batch.
double activations_of_layer(const Job& job, const Layout& layout, bool sparse);

// Bytes of `parameters` parameters with Adam in mixed precision on one of `ranks` ranks at a ZeRO
// stage: 2 + 2 + 12 per parameter before sharding (Rajbhandari et al., 2020).
double zero_bytes(double parameters, int stage, double ranks, double states = 12);

}  // namespace tutti::training::planner
