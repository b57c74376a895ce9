// Which example a training run takes when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::training {

struct Sample {
  size_t data_set = 0;   // index among those of the sampler
  uint64_t example = 0;  // of that data set
  uint64_t epoch = 0;    // how often all examples of that data set were taken before

  bool operator==(const Sample&) const = default;
};

// A data set to draw from; of all samples, weight / sum of weights are of it.
struct SampledSet {
  uint64_t size = 0;  // examples
  double weight = 1;  // any positive number
};

// A pure function of (seed, index), with random access: the only state of a run is the index of its
// next sample, so it resumes at the exact sample, and ranks that take disjoint indices take
// disjoint samples, however many they are.
//
// - Within an epoch of a data set its examples come each once, in an order of the seed, the data
//   set and the epoch (permutation.h).
// - Data sets take turns in a fixed cycle: at every moment each has been taken within 1 of its
//   share of the samples so far. Shares are exact where a cycle of at most 2^20 samples has them,
//   else to 2^-20 of the whole; a data set has one sample a cycle at least.
//
// Memory: 8 bytes a sample of the cycle (1 for one data set, 10 for weights 0.7, 0.2 and 0.1). Any
// number of threads may share one.
class Sampler {
 public:
  // Throws Error(invalid_argument): no data set, one without examples, a weight that is no positive
  // number.
  Sampler(std::vector<SampledSet> sets, uint64_t seed);

  Sample sample(uint64_t index) const;
  // How many of the first `samples` samples are of each data set.
  std::vector<uint64_t> taken(uint64_t samples) const;

 private:
  struct Turn {
    uint32_t data_set;
    uint32_t before;  // turns of the same data set before this one in the cycle
  };

  std::vector<SampledSet> sets_;
  uint64_t seed_;
  std::vector<uint32_t> turns_of_;  // of each data set, in a cycle
  std::vector<Turn> cycle_;
};

}  // namespace tutti::training
