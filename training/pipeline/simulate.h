// Timeline of a plan's entries, given their costs: makespan and idle time.
#pragma once

#include <vector>

#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// In any unit of time. Vectors are by chunk; a single number is for all chunks.
struct Costs {
  std::vector<double> forward = {1};
  std::vector<double> backward_input = {1};
  std::vector<double> backward_weight = {1};  // a combined backward takes both
  // Between chunks c and c + 1, in either direction (one number fewer is allowed): the time from
  // the end of an entry until its result has arrived on another rank. Messages overlap with
  // computation and with each other, and cost nothing between chunks of one rank.
  std::vector<double> message = {0};
};

// Costs of the entries of one schedule. Throws Error(invalid_argument) for invalid costs, or a
// wrong number of chunks.
class EntryCosts {
 public:
  EntryCosts(const Schedule& schedule, const Costs& costs);
  double of(const Entry& entry) const;
  // Message time of the result of `needed` to `entry`.
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
  std::vector<Span> spans;  // in one run of the table, by rank, then by time
  double makespan = 0;      // from the first start to the last end
  double bubble = 0;        // idle / total over all ranks, with a barrier at the end of the step
  // Steps without a barrier: each rank starts the next one when it has completed this one. The time
  // from step to step in the steady state, and idle / total in it.
  double period = 0;
  double steady_bubble = 0;
};

// The plan must have passed check(). Throws Error(invalid_argument) for invalid costs.
Timeline simulate(const Plan& plan, const Costs& costs);

// Time of one run of the table on a host with fewer processors than ranks: at most `processors`
// ranks (1 or more) compute at once; the rank that was ready first goes first. Throws as
// simulate().
double makespan(const Plan& plan, const Costs& costs, int processors);

}  // namespace tutti::training::pipeline
