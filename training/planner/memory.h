// Bytes that a rank's processor needs at the peak of a step, by kind.
#pragma once

#include <cstdint>

#include "training/planner/job.h"

namespace tutti::training::planner {

inline constexpr double kGiB = 1 << 30;

// How a program keeps its values, and what of them is counted.
// What a table calls memory.
enum class MemoryMeasure : uint8_t {
  all,                  // bytes
  activations,          // bytes, of the first stage
  part_of_activations,  // percent of what is kept with nothing computed again and no rows shared
};

struct MemoryRules {
  double parameter = 2;  // bytes of a value, beside what is cut
  double gradient = 4;
  double states = 12;       // with the master copy
  double logit = 6;         // of the output layer: in 16 bits, and in 32 for the loss
  bool last_stage = false;  // counted there, not where it is most
  MemoryMeasure measure = MemoryMeasure::all;
  // What a context and the allocator's gaps take beside the values.
  double context = 0.1 * kGiB;
  double gaps = 0;  // part of the rest
};

MemoryRules memory_rules(Software software);

struct MemoryUse {  // bytes
  double parameters = 0;
  double gradients = 0;
  double states = 0;
  double activations = 0;  // at the schedule's peak
  double buffers = 0;      // of sums and gathers, and the output layer's
  double other = 0;        // the context and gaps
  double total() const { return parameters + gradients + states + activations + buffers + other; }
};

// As the rules measure it: bytes or percent.
double measured_memory(const Job& job, const Layout& layout, const MemoryRules& rules);
// Of the stage that needs most, or of the last one.
MemoryUse memory_use(const Job& job, const Layout& layout, const MemoryRules& rules = {});

// In which nine of ten measured peaks should lie.
Interval memory_interval(double bytes);

// Bytes of activations that a layer keeps for the backward pass of one micro-batch.
double activations_of_layer(const Job& job, const Layout& layout, bool sparse);

// Bytes a rank of `parameters` values with Adam in mixed precision by ZeRO's stage over so many
// ranks: 2 + 2 + 12 for each (Rajbhandari et al., 2020).
double zero_bytes(double parameters, int stage, double ranks, double states = 12);

}  // namespace tutti::training::planner
