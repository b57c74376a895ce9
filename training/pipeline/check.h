// The proof that a plan is right: all ranks are run side by side, computing nothing.
//
// Refused, with rank, place and entry: a micro-batch that does not pass a chunk once in each
// direction; an entry before what it needs; a deadlock, with who waits for whom; a receive that no
// send matches or that another message reaches first; gradients that are not added in ascending
// order of micro-batches; a slot that is used while another micro-batch is in it; weights of a
// version that the rank has not got (yet), or no longer, or that differ between a micro-batch's
// forward and backward, or from what the schedule's rule says; chunks on one rank that lie on
// different sets of ranks otherwise (their gradients are summed together).
//
// Why one run is enough: ranks wait for messages only, and those between two ranks come in order.
// Such a network has one outcome, whatever the timing.
#pragma once

#include <vector>

#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

struct RankBounds {
  int activations = 0;  // the most micro-batches (of any chunk) whose activations are kept at once
  int versions = 0;     // the most versions of the weights that are needed at once
  int received = 0;     // the most receives that are posted and not yet used up
};

struct Bounds {
  std::vector<RankBounds> ranks;
};

// Throws Error(invalid_argument) with the place of the first fault.
Bounds check(const Plan& plan);

}  // namespace tutti::training::pipeline
