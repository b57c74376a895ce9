// Implements tutti plan --cluster localhost: plans layouts of ranks on this host's processors.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/processors.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/plan/faces.h"
#include "tools/tutti/train/plan.h"
#include "training/kernels/peak.h"

namespace tutti::tool {

namespace {

namespace planner = training::planner;

// Returns the options of `tutti train` that follow from the constraints.
std::vector<std::string> fixed_options(const planner::Constraints& c) {
  std::vector<std::string> options;
  const auto add = [&](const char* option, const auto& value) {
    if (value) options.push_back(cat(option, '=', *value));
  };
  add("--dp", c.data);
  add("--tp", c.tensor);
  add("--pp", c.stages);
  add("--cp", c.context);
  add("--ep", c.expert);
  add("--zero", c.zero);
  add("--micro-batch", c.micro_batch);
  if (c.virtual_stages) {
    options.push_back(*c.virtual_stages > 1 ? "--schedule=interleaved" : "--schedule=1f1b");
    if (*c.virtual_stages > 1) add("--virtual", c.virtual_stages);
  }
  if (c.recompute) options.push_back(cat("--recompute=", name(*c.recompute)));
  return options;
}

}  // namespace

planner::Job on_this_host(planner::Job job, const PlanOptions& o) {
  if (!o.efficiencies.empty() || o.software != PlanOptions().software || !o.gpu.empty()) {
    throw UsageError(cat(
        "--efficiencies, --software and --gpu require a GPU cluster, not --cluster ", kThisHost));
  }
  const bool is_half = o.precision == "bf16";
  if (!is_half && !o.precision.empty() && o.precision != "f32") {
    throw UsageError(
        cat("--precision ", o.precision, " requires GPUs: use f32 or bf16 on ", kThisHost));
  }
  job.precision = is_half ? planner::Precision::half : planner::Precision::single;
  const int processors = usable_processors();
  const int ranks = o.gpus.value_or(processors);
  job.cluster = {.name = kThisHost, .gpu = "rank", .hosts = 1, .gpus = ranks};
  const double peak = training::measured_peak(is_half ? DType::bf16 : DType::f32);
  job.processor = {.name = cat("rank", ranks == 1 ? "" : "s", " on ", processors, " processors"),
                   .half_TFLOPs = 1e-12 * peak * processors / ranks};
  return job;
}

planner::Plans plans_on_this_host(const PlanOptions& o, const planner::Job& job) {
  const planner::Constraints constraints = constraints_of(o);
  std::vector<std::string> options = model_options(job);
  if (options.empty()) {
    throw Error(ErrorCode::unsupported,
                cat("`tutti train` does not support the model ", job.model.name),
                {.remedy = "use a GPU cluster for --cluster"});
  }
  for (std::string& option : fixed_options(constraints)) options.push_back(std::move(option));
  options.emplace_back("--data=random");  // units are timed with random samples
  planner::Plans plans = search_showing_progress({.run = training::parse_run_options(options),
                                                  .ranks = job.cluster.ranks(),
                                                  .memory = constraints.memory});
  plans.fitting = 0;
  for (planner::PlannedLayout& planned : plans.layouts) {
    planned.mfu = mfu(job, planned.layout, planned.time.total());
    planned.fits &= planned.mfu >= constraints.least_mfu;
    if (planned.fits) ++plans.fitting;
  }
  std::ranges::stable_sort(plans.layouts, planner::is_better);
  return plans;
}

}  // namespace tutti::tool
