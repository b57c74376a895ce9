// Which samples the ranks of a run take: each example of an epoch once, whatever the ranks, and in
// another order in each epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::training {

struct EpochCheckOptions {
  std::vector<uint64_t> sizes;  // examples of each data set
  std::vector<double> weights;  // of the data sets; empty: by their sizes
  uint64_t batch = 32;          // samples a step, over all ranks
  uint64_t micro_batch = 8;
  uint64_t seed = 1;
  int ranks = 2;
  uint64_t epochs = 3;  // of the smallest data set, at least
};

// Examples of a data set in one epoch, over all ranks.
struct EpochCount {
  size_t data_set = 0;
  uint64_t epoch = 0;
  uint64_t taken = 0;       // samples
  uint64_t repeated = 0;    // examples that were taken more than once
  uint64_t missing = 0;     // examples that were not taken; 0 for the last epoch, which is cut off
  uint64_t same_place = 0;  // examples with the place that they had in the epoch before
};

struct EpochCheck {
  std::vector<EpochCount> epochs;
  uint64_t steps = 0;
  uint64_t resumed_at = 0;  // step
  int resumed_ranks = 0;    // which continue there
  bool same_after_resume =
      false;  // the steps from there on have the same samples in the same order

  // True where no example was missed or repeated, orders differ, and resuming changes nothing.
  bool holds() const;
};

// Takes the samples of all ranks from the Feed of a run, step by step, then again from the middle
// on with one rank more. Throws what Feed throws.
EpochCheck check_epochs(const EpochCheckOptions& options);

}  // namespace tutti::training
