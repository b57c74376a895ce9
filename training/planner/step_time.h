// What a training step takes in a layout, in closed form.
//
//   stage 0  F F F F . . B B B B          micro-batches through the slowest stage, the bubble
//   before stage 1    F F F B F B B B B  |sums|update   and after them, sums of gradients as far as
//   no
//                                                backward hides them, the update
#pragma once

#include <string>

#include "training/planner/job.h"

namespace tutti::training::planner {

// Seconds, of the slowest stage.
struct StepTime {
  double computing = 0;  // of all micro-batches, with what is computed again
  double tensor = 0;     // what communication of each kind adds to that
  double context = 0;
  double dispatch = 0;
  double bubble = 0;
  double transfers = 0;  // between stages
  double gathers = 0;    // ZeRO 3's, and what computing loses beside them
  double sums = 0;       // of gradients, and gathers of values
  double update = 0;
  double total() const {
    return computing + tensor + context + dispatch + bubble + transfers + gathers + sums + update;
  }
};

// The layout is legal (search.h).
StepTime step_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies);
// In which nine of ten measured steps should lie.
Interval time_interval(const Job& job, double seconds);

// "computing", "the bubble" ...: the largest part, but computing only where nothing else takes 10%.
std::string bound_of(const StepTime& time);

}  // namespace tutti::training::planner
