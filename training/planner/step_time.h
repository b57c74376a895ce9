// Time of a training step in a layout, in closed form.
//
//   stage 0  F F F F . . B B B B                 micro-batches on the slowest stage, the bubble
//   stage 1    F F F B F B B B B  |sums|update   around them, gradient sums that backward does not
//                                                overlap, and the update
#pragma once

#include <string>

#include "training/planner/job.h"

namespace tutti::training::planner {

// Seconds on the slowest stage.
struct StepTime {
  double computing = 0;  // all micro-batches, recomputation included
  double tensor = 0;     // exposed communication, by kind
  double context = 0;
  double dispatch = 0;
  double bubble = 0;
  double transfers = 0;  // between stages
  double gathers = 0;    // exposed ZeRO-3 gathers, and the slowdown of computation beside them
  double sums = 0;       // exposed gradient sums and parameter gathers
  double update = 0;
  double total() const {
    return computing + tensor + context + dispatch + bubble + transfers + gathers + sums + update;
  }
};

// Requires a legal layout (search.h).
StepTime step_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies);
// 90% interval of a predicted step time.
Interval time_interval(const Job& job, double seconds);

// Names the largest part of a step other than computation, or "computing" if no other part exceeds
// 10%.
std::string bound_of(const StepTime& time);

}  // namespace tutti::training::planner
