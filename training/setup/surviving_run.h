// A run that survives the death of ranks: the survivors continue from the state in their memory, or
// else from the last checkpoint.
//
//   ranks 0 1 2 3    steps ... 56 57 5-      rank 2 dies in step 58
//   ranks 0 1   3                     58 59  the survivors agree on their members, restore rank 2's
//                                            state from rank 3's copy of it, and repeat the step
//
// A step has the same samples for any number of ranks, so that none is lost or repeated, and batch
// and learning rate are unchanged: the losses are those of a run without deaths, up to rounding.
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
  int ranks = 0;            // that train; the others are spares, which replace dead ranks. 0: all
  int min_ranks = 1;        // the run ends with fewer
  uint64_t copy_every = 1;  // in steps
  int copies = 2;           // of each rank's part of the state: see MemoryCopies
};

// The deaths after which a run continues.
struct Continuation {
  std::vector<int> lost_ranks;  // ranks in the job lost since the last session, ascending
  uint64_t last_step = 0;       // last step done before they were lost
};

// The work of each training rank in its session. `after`: null in the run's first session.
using Conduct = std::function<int(Session& session, const Continuation* after)>;

// Collective over `world`. A rank that is asked to stop while others are not
// (TrainOptions::stop_requested) leaves, and returns 128 + the signal's number; the others
// continue. Returns the result of the last session's conduct, or 0 on a spare that was never
// needed. Throws errors other than deaths, and Error(rank_died) if too few ranks are left, or no
// state to continue from.
int run_with_survivors(Communicator world, RunOptions options, LoadedData data,
                       const SurvivalOptions& survival, const Conduct& conduct);

}  // namespace tutti::training
