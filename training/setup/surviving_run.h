// A run that goes on when ranks die: with those that are left, from the state that they have in
// memory, or else from the last checkpoint.
//
//   ranks 0 1 2 3    steps ... 56 57 5-      rank 2 dies in step 58
//   ranks 0 1   3                     58 59  the others agree who is left, take over what rank 2
//   had
//                                            from the copy that rank 3 keeps, and do the step again
//
// A step has the same samples whoever is there to share them, so that none is lost or repeated, and
// batch and learning rate stay what they were: the losses are those of a run without deaths, but
// for rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/communicator.h"
#include "training/setup/data.h"
#include "training/setup/options.h"
#include "training/setup/session.h"

namespace tutti::training {

struct SurvivalOptions {
  int ranks = 0;            // that train; those beyond wait until one of these dies. 0: all
  int min_ranks = 1;        // with fewer the run ends
  uint64_t copy_every = 1;  // steps
  int copies = 2;           // of each rank's part of the state: MemoryCopies
};

// The losses that made a run continue.
struct Continuation {
  std::vector<int> lost_ranks;  // since then, by their ranks in the job, ascending
  uint64_t last_step = 0;       // that was done before they were lost
};

// The work of each rank that trains, in its session. `after`: null in the run's first one.
using Conduct = std::function<int(Session& session, const Continuation* after)>;

// Collective over `world`. A rank that alone is asked to stop (TrainOptions::stop_requested)
// leaves, and returns 128 + the signal's number; the others go on without it. Returns what the
// conduct of the last session returned; 0 on a rank that was never needed. Throws what is no rank's
// death, and Error(rank_died) where too few are left, or nothing that they could go on from.
int run_with_survivors(Communicator world, RunOptions options, LoadedData data,
                       const SurvivalOptions& survival, const Conduct& conduct);

}  // namespace tutti::training
