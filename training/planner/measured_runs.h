// Reads CSV tables of measured training runs, one run per row. A row needs gpu, gpus, the model's
// sizes, seq and gbs. A missing micro-batch, number of virtual stages or kind of recomputation
// takes its value from the fastest layout that fits. So do missing axes if tp or pp is missing,
// except that a missing cp is 1. If tp and pp are given, missing cp and ep are 1, and dp follows
// from gpus.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/planner/job.h"
#include "training/planner/memory.h"
#include "training/planner/step_time.h"

namespace tutti::training::planner {

struct MeasuredRun {
  std::string id;
  Job job;
  Layout layout;
  std::vector<Layout> open;  // all layouts that match the row; the first is `layout`
  MemoryRules memory_rules;
  std::optional<double> seconds;  // measured step time in seconds
  std::optional<double> memory;   // measured memory in GiB, or percent
  bool calibrates = false;        // true if the column `split` is "calibrate"
  std::string reason;             // reason why the run cannot be predicted; empty: it can
};

// Parses a table; `name` is its name for errors. Throws Error(invalid_argument) that names the line
// or the missing columns.
std::vector<MeasuredRun> read_measured_runs(std::string_view text, const std::string& name);

struct RunPrediction {
  Layout layout;
  StepTime time;
  Interval seconds;
  MemoryUse memory;
  double measured_memory = 0;  // predicted memory by the row's definition: bytes, or percent
};
// Predicts a run whose `reason` is empty.
RunPrediction predict(const MeasuredRun& run, const Efficiencies& efficiencies);

// The efficiencies that predict the calibrating runs best, given the priors of all efficiencies.
struct FittedEfficiencies {
  Efficiencies efficiencies;
  size_t runs = 0;
  std::vector<std::string> misfits;  // such as "run 12: 3.1 s predicted, 5.0 measured"
};
FittedEfficiencies fit_efficiencies(const std::vector<MeasuredRun>& runs);

}  // namespace tutti::training::planner
