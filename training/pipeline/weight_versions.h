// Keeps versions of a stage's weights, for schedules that update them while micro-batches are in
// flight: weight stashing (Narayanan et al.: PipeDream, 2019, section 3.3) and double buffering
// (Narayanan et al.: Memory-efficient pipeline-parallel DNN training, 2021, section 3.1,
// PipeDream-2BW).
//
//   storage's own memory   the newest version, which the optimizer updates
//   copies                 older versions, while an entry of the plan still needs them
#pragma once

#include <map>
#include <vector>

#include "training/parallel/storage.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

class WeightVersions {
 public:
  // Creates the object. `storage` must have whole, not sharded values (up to ZeRO stage 2), and
  // outlive the object.
  explicit WeightVersions(ParameterStorage& storage) : storage_(storage) {}

  // Call before a run. Version 0 of the run is the storage's current values.
  void begin(const RankPlan& plan);
  // Call before an entry is computed: points the parameters at the version that the entry uses.
  // Call done() after the entry.
  void use(int version);
  void done(int version);
  // Call before the optimizer creates the next version.
  void before_update();
  // Points the parameters at the storage's own memory again.
  void end() { use(newest_); }

  // Returns the maximum number of versions that were kept at once.
  int most_versions() const { return most_versions_; }

 private:
  ParameterStorage& storage_;
  std::vector<int> uses_left_;    // by version: number of entries that will still use it
  std::map<int, Tensor> copies_;  // older versions, keyed by version
  int newest_ = 0;
  int most_versions_ = 1;
};

}  // namespace tutti::training::pipeline
