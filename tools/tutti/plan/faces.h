// The parts of `tutti plan`: layouts of a model on a cluster (layouts.cc), measured runs (runs.cc),
// models for a compute budget (budget.cc), and a model's memory (memory.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "training/planner/efficiencies.h"
#include "training/planner/search.h"

namespace tutti::tool {

struct PlanOptions {
  // Options of searches for layouts.
  std::string model;
  std::string cluster;
  std::optional<int> gpus;
  std::string gpu;  // GPU model, for topologies that do not name it
  std::optional<int64_t> global_batch;
  std::optional<int64_t> sequence;
  std::string precision;  // empty: bf16, or f32 on this host
  std::string software = "megatron";
  training::planner::Constraints constraints;
  std::string recompute;
  std::string max_memory;
  double min_mfu = 0;
  std::string tokens;          // number of tokens to train on
  std::optional<double> days;  // deadline in days
  std::string largest;         // "micro-batch" or "sequence"
  int show = 10;
  bool why = false;
  std::string plot;
  bool memory = false;  // true: print the memory of the model, and search nothing
  // Options of measured runs.
  std::string predict;
  std::string fit;
  // Options of compute budgets.
  std::string budget;
  std::string laws;
  std::string fit_laws;

  std::string efficiencies;  // file that --fit writes
  std::string json;
};

training::planner::Efficiencies efficiencies_of(const PlanOptions& options);

// Returns the seconds of each part of a step, as JSON.
Json step_parts_of(const training::planner::StepTime& time);
// Returns the job that the options describe. Throws UsageError for missing options.
training::planner::Job job_of(const PlanOptions& options);
// Returns the constraints of all options, including --recompute, --max-memory and --min-mfu.
training::planner::Constraints constraints_of(const PlanOptions& options);
// Returns the days that training on --tokens takes at this step time.
double days_of(const PlanOptions& options, const training::planner::Job& job, double step_s);
int plan_layouts(const PlanOptions& options);

// Name that stands for this host as a cluster, with ranks on its processors (this_host.cc).
inline constexpr const char* kThisHost = "localhost";
// Returns a job whose model and batch are known, completed with this host as its cluster.
training::planner::Job on_this_host(training::planner::Job job, const PlanOptions& options);
training::planner::Plans plans_on_this_host(const PlanOptions& options,
                                            const training::planner::Job& job);
// Runs `tutti plan --days` or `--largest` and returns the exit code.
int answer_question(const PlanOptions& options);
int predict_runs(const PlanOptions& options);
int fit_runs(const PlanOptions& options);
int plan_budget(const PlanOptions& options);
// Runs `tutti plan --memory` and returns the exit code.
int plan_memory(const PlanOptions& options);
int fit_laws(const PlanOptions& options);

}  // namespace tutti::tool
