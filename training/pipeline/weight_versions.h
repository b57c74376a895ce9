// Versions of a stage's weights, for schedules that update them while micro-batches are in flight:
// weight stashing (Narayanan et al.: PipeDream, 2019, section 3.3) and double buffering (Narayanan
// et al.: Memory-efficient pipeline-parallel DNN training, 2021, section 3.1, PipeDream-2BW).
//
//   storage's own memory   the newest version, which the optimizer updates
//   copies                 older ones, while an entry of the plan still needs them
#pragma once

#include <map>
#include <vector>

#include "training/parallel/storage.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

class WeightVersions {
 public:
  // `storage` must have whole values (up to ZeRO stage 2), and outlive this.
  explicit WeightVersions(ParameterStorage& storage) : storage_(storage) {}

  // Call before a run: version 0 is the storage's.
  void begin(const RankPlan& plan);
  // use() points the parameters at the version of an entry before it is computed; call done() after
  // it.
  void use(int version);
  void done(int version);
  // Call before the optimizer creates the next version.
  void before_update();
  // Points the parameters at the storage's own memory again.
  void end() { use(newest_); }

  // Maximum number of versions kept at once.
  int most_versions() const { return most_versions_; }

 private:
  ParameterStorage& storage_;
  std::vector<int> uses_left_;    // by version
  std::map<int, Tensor> copies_;  // by version
  int newest_ = 0;
  int most_versions_ = 1;
};

}  // namespace tutti::training::pipeline
