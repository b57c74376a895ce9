// Which samples a step takes, how they are cut into micro-batches, and which rank computes which.
//
//   samples of a step  | 0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 |     micro-batches of 4
//   2 ranks            |----- rank 0 ------|------ rank 1 -----|     2 passes each
//
// A rank for which none is left gets the last one too, with weight 0, so that it can take part in
// what the others do.
//
// Pure arithmetic on sample numbers: whatever the number of ranks, a micro-batch has the same
// samples, the same shapes and so the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "training/data/data_set.h"
#include "training/data/loader.h"
#include "training/data/sampler.h"

namespace tutti::training {

struct FeedOptions {
  uint64_t batch = 32;       // samples a step, over all ranks
  uint64_t micro_batch = 8;  // samples of one forward and backward pass
  uint64_t samples = 0;      // of the whole run: the last step may be smaller
  uint64_t seed = 1;
  int rank = 0;  // from `ranks` on: one that computes nothing
  int ranks = 1;
  // Those that share each sample's tokens, and how many tokens each sees at most (0: all).
  int token_rank = 0;
  int token_ranks = 1;
  int64_t window = 0;
  int workers = 1;              // threads that each make a step ahead; 0: when it is needed
  std::vector<double> weights;  // of several data sets; empty: by their sizes
  // Ranks are clients with data of their own, of so many labels each (data/client_set.h); 0: all
  // ranks share the samples.
  int64_t labels_per_client = 0;
};

// What one rank computes in one step.
struct StepFeed {
  std::vector<Batch> own;  // at least one
  uint64_t passes = 0;     // the most micro-batches that any rank has
  uint64_t samples = 0;    // of all ranks together
};

class Feed {
 public:
  // `sets` outlive it. Throws Error(invalid_argument) for options that make no sense.
  Feed(std::vector<const DataSet*> sets, const FeedOptions& options);

  uint64_t steps() const;  // of the whole run
  uint64_t batch() const { return options_.batch; }
  uint64_t passes() const;  // the most micro-batches that any rank has in any step
  // How often each data set was gone through after so many steps; a client's own part of it.
  std::vector<double> epochs(uint64_t steps) const;
  // Steps [from, steps()) in order, made in the background.
  std::unique_ptr<Loader<StepFeed>> steps_from(uint64_t from) const;
  // What the rank of that number computes in a step, which is counted from 0.
  StepFeed part(uint64_t step, int rank) const;
  // Evenly spread over what is held out, at most max_samples; this rank's part of them.
  StepFeed validation(uint64_t max_samples) const;

 private:
  // A rank's part of a step of so many samples.
  struct Range {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  Range range_of(int rank, uint64_t samples) const;

  std::vector<std::unique_ptr<const DataSet>> clients_;  // this client's part of each data set
  std::vector<const DataSet*> sets_;
  FeedOptions options_;
  Sampler sampler_;
};

}  // namespace tutti::training
