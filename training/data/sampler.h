// Determines the order of a training run's examples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::training {

struct Sample {
  size_t data_set = 0;   // index of the data set in the sampler's list
  uint64_t example = 0;  // index of the example in that data set
  uint64_t epoch = 0;    // number of completed passes over that data set

  bool operator==(const Sample&) const = default;
};

// A data set to draw from; its fraction of all samples is weight / sum of weights.
struct SampledSet {
  uint64_t size = 0;  // number of examples
  double weight = 1;  // any positive number, relative to the other sets' weights
};

// Maps the index of a sample to an example. The result depends on (seed, index) alone. The only
// state of a run is therefore the index of its next sample: a run resumes at the exact sample, and
// ranks with disjoint indices take disjoint samples.
//
// - Within an epoch of a data set each example comes once, in an order that depends on the seed,
//   the data set and the epoch (permutation.h).
// - Data sets take turns in a fixed cycle: at every moment the number of samples of each is within
//   1 of its share. Shares are exact if they are whole numbers of samples in some cycle of at most
//   2^20 samples. Otherwise they are rounded to about 2^-20, and every data set has at least one
//   sample per cycle.
//
// Memory: 8 bytes per sample of the cycle (1 sample for one data set, 10 for weights 0.7, 0.2 and
// 0.1). Thread-safe.
class Sampler {
 public:
  // Creates a sampler of these data sets. Throws Error(invalid_argument) for no data sets, a set
  // without examples, or a weight that is not a positive number.
  Sampler(std::vector<SampledSet> sets, uint64_t seed);

  Sample sample(uint64_t index) const;
  // Returns how many of the first `samples` samples come from each data set.
  std::vector<uint64_t> taken(uint64_t samples) const;

 private:
  struct Turn {
    uint32_t data_set;
    uint32_t before;  // number of turns of the same data set earlier in the cycle
  };

  std::vector<SampledSet> sets_;
  uint64_t seed_;
  std::vector<uint32_t> turns_of_;  // number of turns per cycle, by data set
  std::vector<Turn> cycle_;
};

}  // namespace tutti::training
