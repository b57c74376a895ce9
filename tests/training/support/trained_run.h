// A short run of the trainer on a tiny model, on ranks that are threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/training/support/tiny_run.h"
#include "training/models/gpt.h"
#include "training/run/trainer.h"

namespace tutti::training::testing {

// Number of samples of a step.
inline constexpr uint64_t kTrainedBatch = 6;

TrainOptions trained_options(uint64_t steps, int stage = 0, DType dtype = DType::f32);

// The results of a run on one rank.
struct TrainedRun {
  std::vector<uint64_t> steps;
  std::vector<double> losses;
  double validation = 0;
  uint64_t resumed_at = 0;

  bool operator==(const TrainedRun&) const = default;
};

using OnStep = std::function<void(const StepReport&)>;

// Trains as one rank of a job.
TrainedRun train_as_rank(const Job& job, const TrainOptions& options, const OnStep& on_step = {},
                         const GptConfig& config = tiny_gpt());

}  // namespace tutti::training::testing
