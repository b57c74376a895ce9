// The faces of `tutti plan`: layouts for a model on a cluster (layouts.cc), predictions of runs
// that were measured (runs.cc), and models for a budget (budget.cc).
#pragma once

#include <optional>
#include <string>

#include "training/planner/efficiencies.h"

namespace tutti::tool {

struct PlanOptions {
  std::string predict;       // a table of runs
  std::string fit;           // likewise
  std::string efficiencies;  // a file that --fit wrote
  std::string json;
};

training::planner::Efficiencies efficiencies_of(const PlanOptions& options);

int predict_runs(const PlanOptions& options);
int fit_runs(const PlanOptions& options);

}  // namespace tutti::tool
