// A short run of the trainer on a tiny model, on ranks that are threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
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
// Trains on `ranks` ranks. Expects all ranks to have the same results.
TrainedRun train_on(int ranks, const TrainOptions& options);

// Expects every rank to report the error, because all ranks detect it together.
void expect_refused_by_all(int ranks, const std::function<void(const Job&)>& body, ErrorCode code,
                           const std::string& said);
// Expects an error that each of two ranks detects by itself. The first rank that throws may abort
// the other before its check.
void expect_refused(const std::function<void(const Job&)>& body, const std::string& said);

}  // namespace tutti::training::testing
