// All legal layouts of a job, priced and ranked. They are enumerated, not sampled: what is found is
// the best of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "training/planner/memory.h"
#include "training/planner/step_time.h"

namespace tutti::training::planner {

// What the caller fixes; the rest is free.
struct Wishes {
  std::optional<int> data;
  std::optional<int> tensor;
  std::optional<int> stages;
  std::optional<int> context;
  std::optional<int> expert;
  std::optional<int> virtual_stages;
  std::optional<int> zero;
  std::optional<int64_t> micro_batch;
  std::optional<Recompute> recompute;
  double memory = 0;  // bytes of a processor that may be used; 0: nine tenths of it
  double least_mfu = 0;
};

struct PlannedLayout {
  Layout layout;
  StepTime time;
  Interval seconds;
  MemoryUse memory;
  bool fits = false;
  double mfu = 0;
};

struct Plans {
  std::vector<PlannedLayout>
      layouts;  // those that fit, the quickest first; then the smallest others
  size_t considered = 0;
  size_t fitting = 0;
};

// Why a layout is not legal for the job; empty: it is.
std::string why_illegal(const Job& job, const Layout& layout);
// Of one layout, whether it fits or not.
PlannedLayout price(const Job& job, const Layout& layout, const Efficiencies& efficiencies,
                    double memory);
// Keeps `most` of them. Throws Error(invalid_argument) where the wishes leave no legal layout.
Plans search(const Job& job, const Wishes& wishes, const Efficiencies& efficiencies, size_t most);

// Part of the peak that is model's operations.
double mfu(const Job& job, const Layout& layout, double seconds);

// The command that trains the model so, or empty where `tutti train` has no such model or layout.
std::string train_command(const Job& job, const Layout& layout);

}  // namespace tutti::training::planner
