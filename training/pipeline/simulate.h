// When a plan's entries run, given what each takes: the makespan, and how long ranks are idle.
#pragma once

#include <vector>

#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// In any one unit of time. Vectors are by chunk; of one number, it is every chunk's.
struct Costs {
  std::vector<double> forward = {1};
  std::vector<double> backward_input = {1};
  std::vector<double> backward_weight = {1};  // a whole backward takes both
  // From chunk c to c + 1 and back (so there may be one number less): the time from the end of an
  // entry until its result is there on another rank. It overlaps with compute and with other
  // messages, and is nothing between chunks of one rank.
  std::vector<double> message = {0};
};

// What the entries of one schedule take. Throws Error(invalid_argument) for costs that make no
// sense, or are of another number of chunks.
class EntryCosts {
 public:
  EntryCosts(const Schedule& schedule, const Costs& costs);
  double of(const Entry& entry) const;
  // Of what an entry needs from the chunk of another.
  double message(const Entry& entry, const Entry& needed) const;

 private:
  std::vector<double> forward_;
  std::vector<double> backward_input_;
  std::vector<double> backward_weight_;
  std::vector<double> message_;
};

struct Span {
  int rank = 0;
  Entry entry;
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<Span> spans;  // of one run of the table, by rank, then by time
  double makespan = 0;      // from the first start to the last end
  double bubble = 0;        // idle / total over all ranks, in the makespan: ranks wait for each
                            // other at the end of a step
  // Steps follow one another without a barrier: each rank starts the next one when it is done with
  // this one. The time from step to step once that is steady, and idle / total in it.
  double period = 0;
  double steady_bubble = 0;
};

// The plan has passed check(). Throws Error(invalid_argument) for costs that make no sense.
Timeline simulate(const Plan& plan, const Costs& costs);

// The time of one run of the table on a host with fewer processors than ranks: at most `processors`
// ranks (1 or more) compute at once, and of those that could the one that could earliest. Throws as
// simulate().
double makespan(const Plan& plan, const Costs& costs, int processors);

}  // namespace tutti::training::pipeline
