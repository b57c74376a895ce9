// The pattern of most schedules: a rank makes several passes over the micro-batches, each delayed
// by some steps.
#pragma once

#include <initializer_list>
#include <vector>

#include "training/pipeline/schedule.h"

namespace tutti::training::pipeline {

struct Pass {
  Kind kind = Kind::forward;
  int lag = 0;  // at least 0
};

// Returns one rank's entries for one chunk: in step k = 0, 1, ... each pass in turn processes
// micro-batch k - lag, if it exists. Every pass therefore takes micro-batches in ascending order.
//
//   forward, 0     F0 F1 F2    F3    F4              step 2: F2 B0
//   backward, 2             B0    B1    B2 B3 B4     step 5: B3
std::vector<Entry> staggered(int micro_batches, int chunk, std::initializer_list<Pass> passes);

}  // namespace tutti::training::pipeline
