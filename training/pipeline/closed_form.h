// Published formulas for the bubbles of schedules.
#pragma once

#include <optional>
#include <string>

#include "training/pipeline/schedules.h"
#include "training/pipeline/simulate.h"

namespace tutti::training::pipeline {

struct ClosedForm {
  std::string formula;  // "(p-1)/(m+p-1)" for p ranks, m micro-batches, v chunks per rank
  double bubble = 0;    // value of the formula: idle time / total time
  // true if the formula is for steps without a barrier (Timeline::steady_bubble)
  bool back_to_back = false;
  std::string assumes;  // assumptions: "every chunk takes the same time, messages take none"
  // true if the shape and the costs of the call meet the assumptions, so that `bubble` is exact
  bool applies = false;
};

// Returns the published formula for a schedule, or nothing for pipedream and pipedream-2bw, in
// which no rank is idle once the pipeline is full.
//
// GPipe: Huang et al. 2019, section 2.3. 1F1B and interleaved 1F1B: Narayanan et al., "Efficient
// large-scale language model training on GPU clusters", 2021, section 2.2. ZB-H1 and ZB-H2: Qi et
// al., "Zero bubble pipeline parallelism", 2023, table 2. Chimera: Li and Hoefler, 2021, table 2.
std::optional<ClosedForm> closed_form(const ScheduleKind& kind, const Shape& shape,
                                      const Costs& costs);

}  // namespace tutti::training::pipeline
