// Profiles of a model's units, measured while all processors of this host compute, as in training.
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

// Profiles of a run's model, by the part of it that a rank of a mesh has. Micro-batches of one, two
// and four samples are measured when they are first asked for; others follow from these, as times
// and memory grow linearly with the samples.
class UnitProfiles {
 public:
  // `threads`: computing threads of a rank; none: its share of the processors. Units are timed on
  // as many ranks at once as have processors.
  UnitProfiles(int ranks, int processors, std::optional<int64_t> threads = std::nullopt);

  // The profile of a settled run's model as the first rank of a stage has it. Blocks; throws as
  // profile_model().
  const pipeline::Profile& of(const RunOptions& settled, const MeshPlace& place, int64_t samples);

  // Measures that profile with so many samples, whatever is known already. `runs`: of each unit;
  // the median counts.
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
