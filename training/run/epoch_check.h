// Checks which samples the ranks of a run take: every example of an epoch must be taken once,
// whatever the number of ranks, and each epoch must have another order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::training {

struct EpochCheckOptions {
  std::vector<uint64_t> sizes;  // number of examples of each data set
  std::vector<double> weights;  // sampling weights of the data sets; empty: proportional to sizes
  uint64_t batch = 32;          // samples per step, over all ranks
  uint64_t micro_batch = 8;
  uint64_t seed = 1;
  int ranks = 2;
  uint64_t epochs = 3;  // minimum number of epochs of each data set
};

// Counts of the examples of a data set in one epoch, over all ranks.
struct EpochCount {
  size_t data_set = 0;
  uint64_t epoch = 0;
  uint64_t taken = 0;     // number of samples
  uint64_t repeated = 0;  // number of examples that were taken more than once
  // number of examples that were not taken; 0 for an incomplete last epoch
  uint64_t missing = 0;
  uint64_t same_place = 0;  // number of examples at the same place as in the epoch before
};

struct EpochCheck {
  std::vector<EpochCount> epochs;
  uint64_t steps = 0;
  uint64_t resumed_at = 0;  // step at which the run was resumed
  int resumed_ranks = 0;    // number of ranks of the resumed run
  // true if the resumed run has the same samples, in the same order, as the first run from
  // resumed_at on
  bool same_after_resume = false;

  // Returns true if no example was missed or repeated, same_after_resume is true, and in each epoch
  // of at least 16 samples fewer than half of the examples have the same place as in the epoch
  // before.
  bool holds() const;
};

// Takes the samples of all ranks from the Feed of a run, step by step. Then resumes at the middle
// of the run with one more rank, and takes the second half again. Throws Error(invalid_argument)
// for a data set without examples or with 2^31 or more, Error(internal) if two ranks take the same
// micro-batch, and what Feed throws.
EpochCheck check_epochs(const EpochCheckOptions& options);

}  // namespace tutti::training
