// Implements tutti plan --predict and --fit for tables of measured runs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/file_text.h"
#include "base/json.h"
#include "base/median.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/plan/faces.h"
#include "training/planner/measured_runs.h"

namespace tutti::tool {

namespace {

namespace planner = training::planner;

std::vector<planner::MeasuredRun> read_runs(const std::string& path) {
  return planner::read_measured_runs(file_text(path, FileKind::profile), path);
}

Json to_json(const planner::MeasuredRun& run, const planner::Efficiencies& efficiencies) {
  Json row = {{"id", run.id}};
  if (!run.reason.empty()) {
    row["reason"] = run.reason;
    return row;
  }
  const planner::RunPrediction p = predict(run, efficiencies);
  const planner::Job& job = run.job;
  const double seconds = p.time.total();
  const double ranks = p.layout.ranks();
  const auto batch = static_cast<double>(job.global_batch);
  row["layout"] = to_text(p.layout);
  row["step_s"] = seconds;
  row["step_s_low"] = p.seconds.low;
  row["step_s_high"] = p.seconds.high;
  row["tok_s_gpu"] = batch * static_cast<double>(job.sequence) / seconds / ranks;
  row["tflops_gpu"] =
      batch * planner::model_operations(job.model, job.sequence) / seconds / ranks * 1e-12;
  const bool percent = run.memory_rules.measure == planner::MemoryMeasure::part_of_activations;
  const double memory = percent ? p.memory.total() : p.measured_memory;
  const Interval interval = planner::memory_interval(memory);
  row["memory_bytes"] = memory;
  row["memory_bytes_low"] = interval.low;
  row["memory_bytes_high"] = interval.high;
  row["mem_gib"] = p.measured_memory / (percent ? 1 : planner::kGiB);
  row["fits"] = p.memory.total() <= job.processor.memory_GiB * planner::kGiB;
  row["bound_by"] = planner::bound_of(p.time);
  row["parts_s"] = step_parts_of(p.time);
  if (run.seconds) row["measured_s"] = *run.seconds;
  if (run.memory) row["measured_gib"] = *run.memory;
  return row;
}

}  // namespace

planner::Efficiencies efficiencies_of(const PlanOptions& options) {
  if (options.efficiencies.empty()) return {};
  return planner::parse_efficiencies(file_text(options.efficiencies, FileKind::cost_model));
}

int predict_runs(const PlanOptions& options) {
  const planner::Efficiencies efficiencies = efficiencies_of(options);
  Json document = {{"table", options.predict}, {"rows", Json::array()}};
  size_t predicted = 0;
  std::vector<double> errors;
  const std::vector<planner::MeasuredRun> runs = read_runs(options.predict);
  for (const planner::MeasuredRun& run : runs) {
    Json row = to_json(run, efficiencies);
    if (run.reason.empty()) ++predicted;
    if (run.reason.empty() && run.seconds) {
      errors.push_back(std::abs(row["step_s"].get<double>() / *run.seconds - 1));
    }
    document["rows"].push_back(std::move(row));
  }
  std::printf("%zu of %zu runs predicted", predicted, runs.size());
  if (!errors.empty()) {
    std::printf(
        "; of %zu whose time was measured the median error is %.1f%%, the 90th percentile "
        "%.1f%%",
        errors.size(), 100 * percentile(errors, 0.5), 100 * percentile(errors, 0.9));
  }
  std::printf("\n");
  if (!options.json.empty()) write_file(options.json, document.dump(2) + "\n");
  return 0;
}

int fit_runs(const PlanOptions& options) {
  const planner::FittedEfficiencies fitted = planner::fit_efficiencies(read_runs(options.fit));
  std::printf("fitted to %zu runs\n", fitted.runs);
  for (const std::string& misfit : fitted.misfits) std::printf("not fitted: %s\n", misfit.c_str());
  write_file(options.json, to_json(fitted.efficiencies));
  return 0;
}

}  // namespace tutti::tool
