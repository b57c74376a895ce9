// Draws a pipeline's step as text.
//
//   rank 0  F0 F1 .  .  B0--- B1---        "F1": see to_string(Entry); '-': continued; '.': idle
//   rank 1  .  F0 B0--- F1 B1---
#pragma once

#include <string>

#include "training/pipeline/plan.h"
#include "training/pipeline/simulate.h"

namespace tutti::training::pipeline {

// Returns one line per rank, with one column per time slot; `timeline`: result of simulate() for
// the plan. If the times are not small multiples of a common slot, the lines show only the order of
// each rank's entries.
std::string to_text(const Plan& plan, const Timeline& timeline);

}  // namespace tutti::training::pipeline
