// Predicts the time of a training step in a layout, in closed form.
//
//   stage 0  F F F F . . B B B B                 micro-batches on the slowest stage, the bubble
//   stage 1    F F F B F B B B B  |sums|update   around them, gradient sums that backward does not
//                                                overlap, and the update
#pragma once

#include <string>

#include "training/planner/job.h"

namespace tutti::training::planner {

// Parts of the time on the slowest stage, in seconds.
struct StepTime {
  double computing = 0;  // computation of all micro-batches, including recomputation
  double tensor = 0;     // tensor-parallel sums that do not overlap
  double context = 0;    // exchange of keys and values that does not overlap
  double dispatch = 0;   // sending tokens to experts and back
  double bubble = 0;
  double transfers = 0;  // messages between stages
  // with ZeRO-3 or FSDP: collectives that do not overlap, and the slowdown of computation by
  // collectives that do
  double gathers = 0;
  double sums = 0;  // gradient sums and parameter gathers that do not overlap
  double update = 0;
  double total() const {
    return computing + tensor + context + dispatch + bubble + transfers + gathers + sums + update;
  }
};

// Predicts the time of a step; the layout must be legal (search.h).
StepTime step_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies);
// Returns the 90% interval of a predicted step time.
Interval time_interval(const Job& job, double seconds);

// Returns the name of the largest part of a step other than computation, or "computing" if no other
// part exceeds 10% of the step.
std::string bound_of(const StepTime& time);

}  // namespace tutti::training::planner
