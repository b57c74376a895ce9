// Runs of a tiny GPT whose ranks synchronize only occasionally (SyncOptions).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "training/run/trainer.h"

namespace tutti::training::testing {

inline constexpr uint64_t kLateSteps = 24;
inline constexpr uint64_t kLateFlush = 8;  // steps between two synchronizations

// AdamW on batches of 8 samples in micro-batches of 2.
TrainOptions late_options(const std::string& way);

struct LateRun {
  std::vector<double> losses;  // by step
  TrainResult result;
  std::vector<float> values;  // values that the rank owns at the end of the run
};

// Runs one rank's part. Each worker is a mesh of shape `worker`. `before`, if given, is called
// before the first step.
LateRun train_late(const Job& job, const TrainOptions& options, const MeshShape& worker = {},
                   const std::function<void(Replica&)>& before = {});
// Runs all ranks as threads. Returns the runs by rank. Fails the test if ranks report different
// losses.
std::vector<LateRun> train_late_on(int ranks, const TrainOptions& options,
                                   const MeshShape& worker = {});
// Expects all ranks to throw. Returns the text of the first rank's error.
std::string late_refusal(int ranks, const TrainOptions& options, const MeshShape& worker = {});

}  // namespace tutti::training::testing
