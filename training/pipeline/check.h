// Proves that a plan is correct, by running all ranks symbolically.
//
// Rejects the following faults, and names rank, position and entry: a micro-batch that does not
// pass a chunk once in each direction; an entry before its inputs; a deadlock, with the cycle of
// waiting ranks; a receive without a matching send, or that another message matches first;
// gradients that are not added in ascending order of micro-batches; a slot in use by another
// micro-batch; weights of a version that the rank does not have (yet, or any more), that differ
// between a micro-batch's forward and backward, or that violate the schedule's rule; chunks of one
// rank with different sets of holders (their gradients are summed together).
//
// One run proves the plan for every timing: ranks block only on messages, which arrive in order
// between two ranks, and such a network is deterministic.
#pragma once

#include <vector>

#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

struct RankBounds {
  int activations = 0;  // maximum number of micro-batches (of any chunk) with activations
  int versions = 0;     // maximum number of weight versions in use
  int received = 0;     // maximum number of receives that are posted and not yet consumed
};

struct Bounds {
  std::vector<RankBounds> ranks;
};

// Returns the bounds of the plan. Throws Error(invalid_argument) with the position of the first
// fault.
Bounds check(const Plan& plan);

}  // namespace tutti::training::pipeline
