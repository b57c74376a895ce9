// Exhaustive search: predicts and ranks all legal layouts of a job.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "training/planner/memory.h"
#include "training/planner/step_time.h"

namespace tutti::training::planner {

// The settings that the caller fixes; the search varies all others.
struct Constraints {
  std::optional<int> data;
  std::optional<int> tensor;
  std::optional<int> stages;
  std::optional<int> context;
  std::optional<int> expert;
  std::optional<int> virtual_stages;
  std::optional<int> zero;
  std::optional<int64_t> micro_batch;
  std::optional<Recompute> recompute;
  double memory = 0;     // limit of memory per processor, in bytes; 0: 90% of its memory
  double least_mfu = 0;  // layouts with a lower MFU count as not fitting
};

struct PlannedLayout {
  Layout layout;
  StepTime time;
  Interval seconds;
  MemoryUse memory;
  // set by searches on this host only; for clusters see memory_by_stage()
  std::vector<MemoryUse> by_stage;
  bool fits = false;
  double mfu = 0;
};

// Returns true if `a` is better than `b`. Layouts that fit come first, by time, then memory; the
// others follow by memory.
bool is_better(const PlannedLayout& a, const PlannedLayout& b);

struct Plans {
  std::vector<PlannedLayout> layouts;  // layouts that fit, by time; then the others, by memory
  size_t considered = 0;
  size_t fitting = 0;
};

// Returns the reason why a layout is illegal for the job; empty if it is legal.
std::string why_illegal(const Job& job, const Layout& layout);
// Predicts the time and memory of one layout. The layout fits if it needs at most `memory` bytes.
PlannedLayout price(const Job& job, const Layout& layout, const Efficiencies& efficiencies,
                    double memory);
// Searches all layouts within the constraints and returns the best ones, at most `most`. Throws
// Error(invalid_argument) if none is legal.
Plans search(const Job& job, const Constraints& constraints, const Efficiencies& efficiencies,
             size_t most);

// Returns the model FLOPs utilization of a step of `seconds` seconds: model FLOPs over peak,
// without recomputation.
double mfu(const Job& job, const Layout& layout, double seconds);

// Returns a job's model and batch as options of `tutti train`; empty if `tutti train` has no such
// model.
std::vector<std::string> model_options(const Job& job);
// Returns the `tutti train` command line of a layout; empty if `tutti train` has no such model.
std::string train_command(const Job& job, const Layout& layout);

}  // namespace tutti::training::planner
