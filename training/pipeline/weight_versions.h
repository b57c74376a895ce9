// Versions of a stage's weights, for schedules that change them while micro-batches are under way:
// weight stashing (Narayanan et al.: PipeDream, 2019, section 3.3) and double buffering (Narayanan
// et al.: Memory-efficient pipeline-parallel DNN training, 2021, section 3.1, PipeDream-2BW).
//
//   storage's own memory   the newest version, which the optimizer updates
//   copies                 older ones, as long as an entry of the plan still needs them
#pragma once

#include <map>
#include <vector>

#include "training/parallel/storage.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

class WeightVersions {
 public:
  // Storage with whole values (up to ZeRO stage 2); it outlives this.
  explicit WeightVersions(ParameterStorage& storage) : storage_(storage) {}

  // Before a run: version 0 is what the storage has.
  void begin(const RankPlan& plan);
  // Points the parameters at the version of an entry that is about to be computed; after it,
  // done().
  void use(int version);
  void done(int version);
  // The optimizer is about to make the next version.
  void before_update();
  // The parameters are the storage's own again.
  void end() { use(newest_); }

  // The most versions that were kept at once.
  int most_versions() const { return most_versions_; }

 private:
  ParameterStorage& storage_;
  std::vector<int> uses_left_;    // by version
  std::map<int, Tensor> copies_;  // by version
  int newest_ = 0;
  int most_versions_ = 1;
};

}  // namespace tutti::training::pipeline
