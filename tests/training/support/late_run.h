// Runs of a tiny GPT whose ranks meet only now and then (SyncOptions).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "training/run/trainer.h"

namespace tutti::training::testing {

inline constexpr uint64_t kLateSteps = 24;
inline constexpr uint64_t kLateFlush = 8;  // steps between two meetings

// Steps of 8 samples in micro-batches of 2, by AdamW.
TrainOptions late_options(const std::string& way);

struct LateRun {
  std::vector<double> losses;  // of each step
  TrainResult result;
  std::vector<float> values;  // that the rank owns, at the end
};

// On this rank, where each worker is a mesh of that shape. `before`, where given, is called before
// the first step.
LateRun train_late(const Job& job, const TrainOptions& options, const MeshShape& worker = {},
                   const std::function<void(Replica&)>& before = {});
// On ranks that are threads; by rank. Fails the test where ranks are told of other losses.
std::vector<LateRun> train_late_on(int ranks, const TrainOptions& options,
                                   const MeshShape& worker = {});
// What the first rank throws, where all of them do; fails the test where one does not.
std::string late_refusal(int ranks, const TrainOptions& options, const MeshShape& worker = {});

}  // namespace tutti::training::testing
