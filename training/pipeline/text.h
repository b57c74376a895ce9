// A pipeline's step on a terminal.
//
//   rank 0  F0 F1 .  .  B0--- B1---        "F1": see to_string(Entry); '-': it goes on; '.': idle
//   rank 1  .  F0 B0--- F1 B1---
#pragma once

#include <string>

#include "training/pipeline/plan.h"
#include "training/pipeline/simulate.h"

namespace tutti::training::pipeline {

// A line for each rank, a column for each slot of time; `timeline` is the plan's. Where times are
// no small multiples of each other: each rank's entries in order alone.
std::string to_text(const Plan& plan, const Timeline& timeline);

}  // namespace tutti::training::pipeline
