// Profiles a model's units while all processors of this host compute, as in training.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "training/core/axes.h"
#include "training/core/model.h"
#include "training/pipeline/profile.h"
#include "training/setup/options.h"

namespace tutti::training::planner {

// Profiles of a run's model, for the part of the model on a rank of a mesh. Micro-batches of up to
// four samples are measured on demand. Larger ones are extrapolated, because times and memory are
// linear in the number of samples.
class UnitProfiles {
 public:
  // `threads`: number of computing threads per rank; nullopt: an equal share of the processors.
  // Units are timed on as many ranks at once as the processors allow.
  UnitProfiles(int ranks, int processors, std::optional<int64_t> threads = std::nullopt);

  // Returns the profile of a settled run's model on the first rank of a stage. Blocks while it
  // measures. Throws as profile_model() does.
  const pipeline::Profile& of(const RunOptions& settled, const MeshPlace& place, int64_t samples);

  // Measures the profile that of() returns, ignoring the cache. Runs each unit `runs` times and
  // takes the median.
  pipeline::Profile measured(const RunOptions& settled, const MeshPlace& place, int64_t samples,
                             int runs) const;

  int threads() const { return threads_; }
  int at_once() const { return at_once_; }

 private:
  int threads_;
  int at_once_;
  std::map<std::string, pipeline::Profile> known_;
};

}  // namespace tutti::training::planner
