// Exhaustive search: all legal layouts of a job, priced and ranked.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "training/planner/memory.h"
#include "training/planner/step_time.h"

namespace tutti::training::planner {

// Axes that the caller fixes; all others are searched.
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
  double memory = 0;  // limit per processor, in bytes; 0: 90% of its memory
  double least_mfu = 0;
};

struct PlannedLayout {
  Layout layout;
  StepTime time;
  Interval seconds;
  MemoryUse memory;
  std::vector<MemoryUse> by_stage;  // on this host only; on clusters use memory_by_stage()
  bool fits = false;
  double mfu = 0;
};

// Orders fitting layouts by time, then memory; others by memory.
bool is_better(const PlannedLayout& a, const PlannedLayout& b);

struct Plans {
  std::vector<PlannedLayout> layouts;  // fitting layouts by time, then others by memory
  size_t considered = 0;
  size_t fitting = 0;
};

// Reason why a layout is illegal for the job; empty if it is legal.
std::string why_illegal(const Job& job, const Layout& layout);
// Prices one layout; it fits if it needs at most `memory` bytes.
PlannedLayout price(const Job& job, const Layout& layout, const Efficiencies& efficiencies,
                    double memory);
// Searches all layouts within the constraints and returns the best `most`. Throws
// Error(invalid_argument) if none is legal.
Plans search(const Job& job, const Constraints& constraints, const Efficiencies& efficiencies,
             size_t most);

// Model FLOPs utilization: model FLOPs over peak, without recomputation.
double mfu(const Job& job, const Layout& layout, double seconds);

// A job's model and batch as options of `tutti train`; empty if it has no such model.
std::vector<std::string> model_options(const Job& job);
// The `tutti train` command line of a layout; empty if `tutti train` has no such model.
std::string train_command(const Job& job, const Layout& layout);

}  // namespace tutti::training::planner
