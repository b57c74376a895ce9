// Proves that a plan is correct, by running all ranks symbolically.
//
// Rejects the following faults, and names rank, position and entry: a micro-batch that does not
// pass a chunk once in each direction; an entry before its inputs; a deadlock, with the cycle of
// waiting ranks; a receive whose message is never sent, or for which another message arrives first;
// gradients that are not added in ascending order of micro-batches; a slot in use by another
// micro-batch; a version of the weights that the rank does not have yet or has released, that
// differs between a micro-batch's forward and backward, or that violates the schedule's rule;
// chunks of one rank with different sets of holders (the gradients of a rank's chunks are summed
// together, over one set of ranks); a chunk on several ranks in a schedule without flushes, in
// which each rank would update its copy of the weights independently.
//
// One run proves the plan for every timing: ranks block only on messages, which arrive in order
// between two ranks, and such a network is deterministic.
#pragma once

#include <vector>

#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

struct RankBounds {
  int activations = 0;  // maximum number of kept activations, one per micro-batch and chunk
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
