// Computes the timeline of a plan's entries, with its makespan and idle time, from their costs.
#pragma once

#include <vector>

#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// Costs in any unit of time. Vectors have one number per chunk; a single number is for all chunks.
struct Costs {
  std::vector<double> forward = {1};
  std::vector<double> backward_input = {1};
  // a combined backward takes backward_input + backward_weight
  std::vector<double> backward_weight = {1};
  // Message times between chunks c and c + 1, in either direction (one number fewer is allowed):
  // the time from the end of an entry until its result has arrived on another rank. Messages
  // overlap with computation and with each other, and cost nothing between chunks of one rank.
  std::vector<double> message = {0};
};

// The costs of the entries of one schedule. The constructor throws Error(invalid_argument) for
// invalid costs, or a wrong number of chunks.
class EntryCosts {
 public:
  EntryCosts(const Schedule& schedule, const Costs& costs);
  double of(const Entry& entry) const;
  // Returns the time of the message that brings the result of `needed` to `entry`.
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
  std::vector<Span> spans;  // entries in one run of the table, ordered by rank, then by time
  double makespan = 0;      // time from the first start to the last end
  // idle time / total time over all ranks, with a barrier at the end of the step
  double bubble = 0;
  // For steps without a barrier, in which each rank starts the next step when it has completed the
  // current step: `period` is the time from step to step in the steady state, and `steady_bubble`
  // is idle time / total time in the steady state.
  double period = 0;
  double steady_bubble = 0;
};

// Computes the timeline of a plan, which must have passed check(). Throws Error(invalid_argument)
// for invalid costs.
Timeline simulate(const Plan& plan, const Costs& costs);

// Returns the time of one run of the table on a host with fewer processors than ranks: at most
// `processors` ranks (at least 1) compute at once, and the rank that was ready first goes first.
// Throws as simulate() does.
double makespan(const Plan& plan, const Costs& costs, int processors);

}  // namespace tutti::training::pipeline
