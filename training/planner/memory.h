// Predicts the memory of a rank at the peak of a step, by kind.
#pragma once

#include <cstdint>
#include <vector>

#include "training/planner/job.h"

namespace tutti::training::planner {

inline constexpr double kGiB = 1 << 30;

// Definitions of memory that published tables use.
enum class MemoryMeasure : uint8_t {
  all,          // all memory, in bytes
  activations,  // activations of the first stage, in bytes
  // activations in percent of the activations without recomputation and sequence parallelism
  part_of_activations,
};

// The bytes that training software keeps, and the definition of the memory that was measured.
struct MemoryRules {
  double parameter = 2;  // bytes per parameter
  double gradient = 4;
  double states = 12;  // bytes of optimizer states per parameter, including the master copy
  double logit = 6;    // bytes per logit: 16 bits, and 32 bits for the loss
  // true: memory was measured on the last stage; false: on the stage that needs the most memory
  bool last_stage = false;
  MemoryMeasure measure = MemoryMeasure::all;
  double context = 0.1 * kGiB;  // bytes of driver context and workspaces
  double gaps = 0;              // allocator fragmentation, as a fraction of all other memory
};

MemoryRules memory_rules(Software software);

struct MemoryUse {  // Bytes of each kind.
  double parameters = 0;
  double gradients = 0;
  double states = 0;
  double activations = 0;  // activations at the schedule's peak
  double buffers = 0;      // gathered parameters, logits
  double other = 0;        // driver context and fragmentation
  double total() const { return parameters + gradients + states + activations + buffers + other; }
};

// Returns the memory by the definition rules.measure, in bytes or percent.
double measured_memory(const Job& job, const Layout& layout, const MemoryRules& rules);
// Returns the memory of the first or the last stage, whichever needs more; if rules.last_stage is
// set, of the last stage.
MemoryUse memory_use(const Job& job, const Layout& layout, const MemoryRules& rules = {});

// Returns the memory of each stage.
std::vector<MemoryUse> memory_by_stage(const Job& job, const Layout& layout,
                                       const MemoryRules& rules = {});

// Returns the 90% interval of a predicted peak.
Interval memory_interval(double bytes);

// Returns the bytes of activations that a layer keeps for backward of one micro-batch.
double activations_of_layer(const Job& job, const Layout& layout, bool sparse);

// Returns the bytes of `parameters` parameters with Adam in mixed precision on one of `ranks` ranks
// at a ZeRO stage: 2 + 2 + 12 per parameter before sharding (Rajbhandari et al., 2020).
double zero_bytes(double parameters, int stage, double ranks, double states = 12);

}  // namespace tutti::training::planner
