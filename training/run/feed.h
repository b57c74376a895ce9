// Chooses the samples of each step, divides them into micro-batches, and assigns the micro-batches
// to ranks.
//
//   samples of a step  | 0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 |     micro-batches of 4
//   2 ranks            |----- rank 0 ------|------ rank 1 -----|     2 passes each
//
// A rank without samples repeats the step's last micro-batch with weight 0, so that it takes part
// in the communication of the other ranks.
//
// The assignment is pure arithmetic on the indices of samples. A micro-batch has the same samples
// and shapes, and therefore the same bits, for any number of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "training/data/data_set.h"
#include "training/data/loader.h"
#include "training/data/sampler.h"

namespace tutti::training {

struct FeedOptions {
  uint64_t batch = 32;       // samples per step, over all ranks
  uint64_t micro_batch = 8;  // samples per forward and backward pass
  uint64_t samples = 0;      // samples of the whole run; the last step may be smaller
  uint64_t seed = 1;
  int rank = 0;  // a rank >= `ranks` has no samples of its own
  int ranks = 1;
  // This rank's index among the ranks that share each sample's tokens, and the number of those
  // ranks. `window`: attention window in tokens; 0: unlimited.
  int token_rank = 0;
  int token_ranks = 1;
  int64_t window = 0;
  int workers = 1;              // number of threads that prepare steps ahead; 0: prepare on demand
  std::vector<double> weights;  // sampling weights of the data sets; empty: proportional to sizes
  // Number of labels of each client's data, if ranks are clients that have different data
  // (data/client_set.h). 0: all ranks share the samples.
  int64_t labels_per_client = 0;
};

// A rank's part of one step.
struct StepFeed {
  // this rank's micro-batches; at least one, except if a validation has no samples
  std::vector<Batch> own;
  uint64_t passes = 0;   // maximum number of micro-batches of any rank
  uint64_t samples = 0;  // number of samples over all ranks
};

class Feed {
 public:
  // Creates the feed; the data sets must outlive it. Throws Error(invalid_argument) for invalid
  // options.
  Feed(std::vector<const DataSet*> sets, const FeedOptions& options);

  uint64_t steps() const;  // Returns the number of steps of the whole run.
  uint64_t batch() const { return options_.batch; }
  uint64_t passes() const;  // Returns the maximum number of micro-batches of a rank in any step.
  // Returns for each data set the number of epochs after `steps` steps, which may be fractional:
  // samples taken / size of the set. For a client, the set is its own part of the data set.
  std::vector<double> epochs(uint64_t steps) const;
  // Returns a loader that prepares this rank's parts of the steps [from, steps()), in order, in the
  // background.
  std::unique_ptr<Loader<StepFeed>> steps_from(uint64_t from) const;
  // Returns rank `rank`'s part of step `step`. Steps are counted from 0.
  StepFeed part(uint64_t step, int rank) const;
  // Returns this rank's part of the validation samples. They are spread evenly over the held-out
  // data: at most max_samples over all ranks, but at least one of each data set that has any.
  StepFeed validation(uint64_t max_samples) const;

 private:
  // The range of a step's samples that a rank takes.
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
