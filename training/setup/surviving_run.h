// Runs a training that survives the death of ranks: the survivors continue from the state in their
// memory or, if that is incomplete, from the last checkpoint.
//
//   ranks 0 1 2 3    steps ... 56 57 5-      rank 2 dies in step 58
//   ranks 0 1   3                     58 59  the survivors agree on their members, restore rank 2's
//                                            state from rank 3's copy of it, and repeat the step
//
// A step has the same samples for any number of ranks, so no sample is lost or repeated, and batch
// and learning rate do not change. The losses are those of a run without deaths, up to rounding.
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
  // number of ranks that train; the others are spares, which replace dead ranks. 0: all
  int ranks = 0;
  int min_ranks = 1;        // the run ends if fewer ranks survive
  uint64_t copy_every = 1;  // steps between two copies of the state
  int copies = 2;           // number of copies of each rank's part of the state: see MemoryCopies
};

// Tells a session that it continues the run after deaths.
struct Continuation {
  std::vector<int> lost_ranks;  // ranks in the job that were lost since the last session, ascending
  uint64_t last_step = 0;       // last step that was completed before these ranks were lost
};

// Function that each training rank runs with its session. `after`: null in the run's first session.
using Conduct = std::function<int(Session& session, const Continuation* after)>;

// Collective over `world`. Runs sessions until the run ends. A rank that is asked to stop while
// others are not (TrainOptions::stop_requested) leaves, and returns 128 + the signal's number; the
// others continue. Returns the result of the last session's `conduct`, or 0 on a rank that was a
// spare in the last session. Throws errors other than deaths, and Error(rank_died) if too few ranks
// survive, or if there is no state from which the run can continue.
int run_with_survivors(Communicator world, RunOptions options, LoadedData data,
                       const SurvivalOptions& survival, const Conduct& conduct);

}  // namespace tutti::training
