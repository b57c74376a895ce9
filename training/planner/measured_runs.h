// Tables of training runs that somebody measured: a run a row, as CSV. What a row must say to be
// predicted: gpu, gpus, a model by its sizes, seq, gbs. What it leaves open of axes, micro-batch,
// virtual stages and recomputation is taken as the quickest that fits.
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
  std::vector<Layout> open;  // layouts that the row may mean; the first is `layout`
  MemoryRules memory_rules;
  std::optional<double> seconds;  // of a step
  std::optional<double> memory;   // GiB, or percent
  bool calibrates = false;        // "split" says so: others are to judge
  std::string reason;             // why it cannot be predicted; empty: it can
};

// Throws Error(invalid_argument) that names the line, or the columns that are missing.
std::vector<MeasuredRun> read_measured_runs(std::string_view text, const std::string& name);

struct RunPrediction {
  Layout layout;
  StepTime time;
  Interval seconds;
  MemoryUse memory;
  double measured_memory = 0;  // as the row measures it: bytes, or percent
};
// Of a run without a reason.
RunPrediction predict(const MeasuredRun& run, const Efficiencies& efficiencies);

// Those with which the runs that calibrate are predicted best, near what was expected before.
struct FittedEfficiencies {
  Efficiencies efficiencies;
  size_t runs = 0;
  std::vector<std::string> misfits;  // "run 12: predicted 3.1 s, measured 5.0"
};
FittedEfficiencies fit_efficiencies(const std::vector<MeasuredRun>& runs);

}  // namespace tutti::training::planner
